"""A whole federation in one process: in-memory adapters of the ports, and `simulate`."""
