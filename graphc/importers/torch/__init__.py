"""Models of PyTorch: `from_torch`. `families` holds the rules, `table` joins them."""

from graphc.importers.torch.entry import from_torch as from_torch
