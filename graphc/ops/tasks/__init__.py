"""Operators of one task: morphology, beam search, edit distance, sampling, suppression."""
