"""Passes: each takes a valid program and returns a better, equivalent one."""
