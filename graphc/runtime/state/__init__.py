"""The values of variables: initial, live, and as users see them."""
