"""Tables of the report: sites, and the method beside its baselines."""
