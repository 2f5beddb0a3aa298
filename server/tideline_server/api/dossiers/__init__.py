"""Dossiers of runs over HTTP."""
