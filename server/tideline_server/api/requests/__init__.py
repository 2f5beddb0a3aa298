"""What every request passes: its key and role, limits, ids, retries, entity tags."""
