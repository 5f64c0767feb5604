"""What sources and stages of a pipeline are made of: cursors, nodes and marks."""
