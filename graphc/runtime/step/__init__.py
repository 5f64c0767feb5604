"""Executables and plans: compiling and calling a step."""
