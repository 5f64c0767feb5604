"""Signatures as SavedModels of TensorFlow: the graph, and the files of its variables."""
