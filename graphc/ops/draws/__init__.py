"""Random keys, draws and distributions. `graphc.ops.random` exports their functions."""
