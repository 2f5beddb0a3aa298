"""What changes, for pages that list: one look at the journal a second, however many listen, and none while nobody does."""
