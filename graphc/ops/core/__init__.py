"""Helpers for all operator families: adding nodes, checks, layout rules, precision."""
