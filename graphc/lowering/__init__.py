"""Programs to JAX functions."""
