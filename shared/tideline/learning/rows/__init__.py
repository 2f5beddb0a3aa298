"""Rows that are not in memory: in a scratch file, in files that are decoded when they are asked for, in a Dataset of torch."""
