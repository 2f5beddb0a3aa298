"""The coordinator: the gRPC port for agents, the HTTP API, the journal's database, the store of parts, the numeric worker."""
