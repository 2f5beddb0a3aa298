"""Runs whose sums are secure."""
