"""The version, in the one place from which the build and the package both read it."""

__version__ = "0.1.0"
