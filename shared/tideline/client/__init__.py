"""The coordinator as its users meet it: its HTTP API, saved logins, progress, the audit log checked here, certificates."""
