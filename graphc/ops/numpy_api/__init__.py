"""Functions with NumPy's names and meanings, composed of other operators."""
