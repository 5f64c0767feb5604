"""Passes: each takes a valid program and returns a better one that means the same."""
