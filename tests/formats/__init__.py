"""What each release writes on disk and on the wire, as files that every later version must read."""
