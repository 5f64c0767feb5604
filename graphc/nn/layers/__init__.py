"""`Layer`, and layers that are not recurrent and have no attention."""
