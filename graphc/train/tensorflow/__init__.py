"""TensorFlow's files without TensorFlow: protocol buffers, constant tensors, checkpoints.

The importer of graphs in `graphc/importers/tensorflow/` uses them, too.
"""
