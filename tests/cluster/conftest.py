"""The scripts are run by launched processes; collecting them for docstring examples would run them
here."""

collect_ignore = ["scripts"]
