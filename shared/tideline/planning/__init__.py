"""Plans that need no run: a request in plain data, and the answer in plain data.

request  what is known of devices, and the weights of a plan: read and checked, with the place of every mistake
links    the plan, by the formulas of tideline.numerics; it loads NumPy, and whatever the solver needs
"""
