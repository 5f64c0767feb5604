"""Passes that roll repeated blocks into loops and merge nodes of the same kind."""
