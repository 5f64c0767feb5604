"""Attention with several heads, and transformer blocks."""
