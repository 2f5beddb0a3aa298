"""An agent's home on disk: its identity, its keys, and those of its peers."""
