"""The engine: what a round is, who keeps what, and the ports to the world. It knows no method and no network.

model        the values: runs, orders, clients, experiments, what is asked of numbers
ports        what the engine needs from outside
coordinator  what runs at the coordinator: services for users and for agents, the scheduler, the store of parts
site         what runs at a site: the life of an order
peers        what sites seal for each other, and by which keys they know each other
audit        the log of what was done
compute      numbers: turns of the coordinator, steps of a site. The only room that loads torch
process      calls of a process of its own, as plain data over pipes
simulation   all of it in one process, with in-memory adapters of the ports
"""
