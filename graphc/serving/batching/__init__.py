"""Joins concurrent requests to batches, where that provably changes no result."""
