"""`gc.freeze`: a graph for inference with variables as constants."""
