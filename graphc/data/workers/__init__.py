"""Threads and processes that work for the stages of a pipeline."""
