"""Executables and plans: what a call of a step does."""
