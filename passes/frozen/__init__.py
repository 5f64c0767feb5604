"""Passes for inference programs whose variables are constants."""
