"""What runs at the coordinator: services for users and agents, the scheduler of runs, the store of parts."""
