"""Sources of pipelines: arrays, files and other iterables."""
