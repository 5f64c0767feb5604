"""Passes that find attention and choose how it is computed."""
