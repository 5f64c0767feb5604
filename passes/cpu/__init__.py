"""Passes and XLA options for CPUs."""
