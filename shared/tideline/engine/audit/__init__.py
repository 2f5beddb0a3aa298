"""The audit log: its entries, the chain that ties them, and what is recorded of each action."""
