"""Experiments as files: read with their lines, and simulated in this process."""
