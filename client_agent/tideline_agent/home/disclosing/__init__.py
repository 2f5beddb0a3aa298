"""What of the home may be told, and only where its owner says so."""
