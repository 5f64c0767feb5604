"""Callbacks, which `fit` calls while it trains: the base class, and the callbacks of graphc."""
