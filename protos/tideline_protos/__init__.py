"""The wire: ids, digests, names and metrics. No method in it."""
