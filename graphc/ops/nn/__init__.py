"""Operators of neural networks, from convolutions to attention. Layers are in `graphc.nn`."""
