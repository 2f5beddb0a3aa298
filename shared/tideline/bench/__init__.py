"""Comparing methods by a grid of runs: its cells, their scores, tables and figures."""
