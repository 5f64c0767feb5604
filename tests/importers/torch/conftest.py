"""Excludes the script that needs PyTorch from collection."""

collect_ignore = ["make_archives.py"]
