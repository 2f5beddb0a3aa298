"""The mechanisms of differential privacy: streams of a secret key, noise on a grid, and what releases have spent."""
