"""The disk cache for later processes, and what its entries depend on besides the program."""
