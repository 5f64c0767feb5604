"""Passes that reduce memory: recomputation, updates in place and in loops."""
