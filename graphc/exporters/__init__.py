"""Graphs and their variables in the formats of other frameworks."""
