"""Dossiers of runs, made one after the other and signed by the coordinator's own key."""
