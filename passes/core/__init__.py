"""Shared parts of the passes: records, rules, readers, costs. Contains no passes."""
