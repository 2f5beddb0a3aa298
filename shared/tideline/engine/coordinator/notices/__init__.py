"""Who is notified of what: targets, what is read from the log, and what is sent when."""
