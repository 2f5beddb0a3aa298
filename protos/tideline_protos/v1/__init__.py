"""Version 1 of the protocol. `federation_pb2` is generated from federation.proto by `make protos`."""
