"""The scripts are run by jobs; collecting them for docstring examples would run them here."""

collect_ignore = ["scripts"]
