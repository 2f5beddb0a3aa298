"""The dossier: one signed file about one run, for whoever is responsible for the protection of its data."""
