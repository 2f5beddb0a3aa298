"""What the agent's machine computes on, and how busy that is: read from the system, without torch."""
