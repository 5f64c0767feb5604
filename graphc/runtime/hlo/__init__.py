"""Reads the compiled text: FLOPs, bytes, kernels, collectives, custom calls. Runs nothing."""
