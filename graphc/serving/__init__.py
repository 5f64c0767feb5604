"""The model server: TensorFlow Serving's protocol for artifacts of graphc."""
