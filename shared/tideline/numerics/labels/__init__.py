"""Labels where there are none, and how far predictions can be believed."""
