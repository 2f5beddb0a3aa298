"""Tideline from Python: simulations of datasets, runs of a coordinator, and what is done with them. docs/python.md shows it."""
