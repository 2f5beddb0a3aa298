"""Runs that protect rows, at both ends."""
