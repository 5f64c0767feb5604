"""Elementwise operators and their functions. No reductions, no changes of shape."""
