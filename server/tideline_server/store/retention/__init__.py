"""Deletes what is written of runs that are over."""
