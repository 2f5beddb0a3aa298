"""The coordinator: doors for agents (gRPC) and people (HTTP), the journal's database, the store of parts, the numeric worker."""
