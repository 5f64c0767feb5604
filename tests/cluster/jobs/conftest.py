"""Excludes the scripts from collection: jobs run them, and collection would run them here."""

collect_ignore = ["scripts"]
