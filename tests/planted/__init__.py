"""Faults planted into copies of the product, one at a time: does a test notice? `python -m tests.planted` (`make planted`)."""
