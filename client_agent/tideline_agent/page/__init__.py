"""The owner's page: what waits, what left, what is at work, on this machine alone."""
