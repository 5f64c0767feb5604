"""Cells, and layers that run them along the time axis."""
