"""Passes for GPUs."""
