"""Rules, a file for each family of operators: the name of an operator -> its rule."""
