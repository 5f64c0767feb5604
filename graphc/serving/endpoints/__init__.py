"""The endpoints: REST and gRPC, metrics and the access log."""
