"""The databases beneath the journal: where one is, how transactions go, what differs between SQLite and Postgres."""
