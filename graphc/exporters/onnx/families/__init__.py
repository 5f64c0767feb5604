"""The rules, by families of operators."""
