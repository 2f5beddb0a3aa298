"""Decoded samples of a site in a file of its own: whole or not there, checked at each reading, made once for all runs."""
