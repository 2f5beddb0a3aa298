"""What runs at a site, beside its data."""
