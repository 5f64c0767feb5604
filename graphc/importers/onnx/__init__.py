"""Models in ONNX: `from_onnx`. `families` holds the rules, `table` joins them."""

from graphc.importers.onnx.entry import from_onnx as from_onnx
