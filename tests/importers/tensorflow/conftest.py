"""The scripts that need TensorFlow are not tests."""

collect_ignore = ["make_cases.py", "make_models.py"]
