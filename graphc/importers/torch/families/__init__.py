"""Rules, a file for each family of operators: "aten.<operator>.<overload>" -> its rule."""
