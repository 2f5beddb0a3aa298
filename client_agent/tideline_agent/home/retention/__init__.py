"""What goes from a home by its owner's rules: chosen, heard of at the coordinator, and deleted."""
