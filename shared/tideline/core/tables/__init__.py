"""Tables: what a world says of their columns."""
