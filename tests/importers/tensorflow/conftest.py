"""Excludes the scripts that need TensorFlow from collection."""

collect_ignore = ["make_cases.py", "make_models.py"]
