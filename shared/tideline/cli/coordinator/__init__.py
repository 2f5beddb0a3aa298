"""Commands of a coordinator's users: runs, clients, keys, parts, links, the audit log."""
