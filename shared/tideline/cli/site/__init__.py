"""Commands of a site's owner, beside the data."""
