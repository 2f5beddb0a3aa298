"""Browsers that have signed in: with a key, or as users of a provider of identities."""
