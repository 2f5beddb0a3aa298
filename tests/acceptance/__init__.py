"""Real processes over real sockets, killed at chosen moments."""
