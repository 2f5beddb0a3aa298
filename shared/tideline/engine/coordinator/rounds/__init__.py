"""What the round at hand waits for: the run's rules, and what its exchange needs."""
