"""Operators that make, move, select and update elements."""
