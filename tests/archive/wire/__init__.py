"""Weights in fewer bytes."""
