"""What is on the wire: messages, tensors and JSON. This folder knows nothing of loaded models."""
