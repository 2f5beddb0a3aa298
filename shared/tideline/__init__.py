"""Tideline: federated learning for data that shift from place to place."""

__version__ = "0.1.0"
