"""Excludes the scripts from collection: launched processes run them, and collection of their
docstring examples would run them here."""

collect_ignore = ["scripts"]
