"""Operators with bodies (loops, branches, calls, maps, custom gradients) and their gradients."""
