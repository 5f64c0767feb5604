"""`Refused`: why one node cannot be written."""

from __future__ import annotations


class Refused(Exception):
    """A node that ONNX cannot express, with the reason. The node and its line are added later."""
