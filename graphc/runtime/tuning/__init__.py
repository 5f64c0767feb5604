"""`gc.tune`: variants of a program, their trials or estimates, and the report."""
