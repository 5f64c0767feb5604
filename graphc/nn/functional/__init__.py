"""Functions of neural networks. They own no variables."""
