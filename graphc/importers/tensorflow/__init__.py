"""TensorFlow's graphs as layers: frozen GraphDefs, SavedModels, MetaGraphs with checkpoints.

TensorFlow is not needed. `files` reads the formats, `evaluation` walks a graph and applies the
rules of `rules/`, one function for each operator; `loops`, `branches` and `functions` convert
control flow of both versions.
"""
