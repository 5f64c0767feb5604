"""What all exporters use: files that are written as a whole."""
