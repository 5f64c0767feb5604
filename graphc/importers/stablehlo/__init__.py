"""StableHLO and exported JAX programs: each operation becomes a call of `jax.lax`, and these calls
become nodes, as `gc.from_jax` makes them.
"""
