"""Operators that connect programs: state, collectives, host calls, order, JAX primitives."""
