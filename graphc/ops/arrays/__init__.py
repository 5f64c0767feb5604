"""Operators that create, move, select and update elements."""
