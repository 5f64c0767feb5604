"""The intermediate representation: types, graphs, programs, and their text and serial forms."""

from graphc.ir.graph import Graph
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Program
from graphc.ir.variable import Variable

__all__ = ["Graph", "Node", "Program", "Tensor", "Variable"]
