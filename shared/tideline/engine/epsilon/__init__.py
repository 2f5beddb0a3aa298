"""What private runs cost a site's rows, in all: an accounting that needs no library, and budgets that are never exceeded."""
