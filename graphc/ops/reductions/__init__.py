"""Operators that reduce along axes, scan along them, or sort them."""
