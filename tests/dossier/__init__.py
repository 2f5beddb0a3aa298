"""Dossiers: what they say, that every byte is covered, and that hostile ones do no harm."""
