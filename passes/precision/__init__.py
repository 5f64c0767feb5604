"""Passes that change dtypes: mixed precision, loss scaling, and the check of numerics."""
