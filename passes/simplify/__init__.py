"""Passes that make programs smaller or hoist work out of loops."""
