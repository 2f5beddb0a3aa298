"""Plans that need no run: what a person or a program asks in plain data, and the answer in plain data.

asked    what is known of devices, and what a plan of links is to weigh: read, with every mistake at its place
links    the plan, by the formulas of tideline.numerics; it loads NumPy, and whatever the solver needs
"""
