"""The bulk lane: parts over HTTP, a connection and a thread for each transfer. What may pass, a ticket of the gRPC port says."""
