"""What sites seal for each other through the coordinator, and by which keys they know each other."""
