"""Compilation and execution: executables, sessions, state."""
