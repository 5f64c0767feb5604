"""Passes that update only the rows of a table that a step looks up."""
