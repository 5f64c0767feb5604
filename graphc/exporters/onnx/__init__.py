"""Graphs as ONNX models: a rule for each operator, a file for each family of operators."""
