"""Optimal transport between point clouds, their barycenters, and dictionaries of them."""
