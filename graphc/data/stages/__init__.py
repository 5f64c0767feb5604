"""Stages of pipelines: each reads the items of the stage before it."""
