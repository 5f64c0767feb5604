"""Turns programs into JAX functions."""
