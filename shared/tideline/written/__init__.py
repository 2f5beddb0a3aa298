"""Experiments as they are written: YAML and JSON, with the line of every value."""
