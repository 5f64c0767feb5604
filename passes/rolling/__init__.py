"""Passes that make repeated blocks loops and alike nodes one."""
