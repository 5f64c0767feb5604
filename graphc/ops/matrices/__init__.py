"""Products, decompositions and solvers of matrices. `graphc.ops.linalg` exports their functions."""
