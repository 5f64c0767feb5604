"""What the compiled text says: FLOPs, bytes, kernels, collectives, custom calls. Runs nothing."""
