"""Who sees what of a coordinator, and how much each project may have."""
