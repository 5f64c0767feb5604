"""Excludes the script that needs TensorFlow from collection."""

collect_ignore = ["make_cases.py"]
