"""What pages are made of that a person may print."""
