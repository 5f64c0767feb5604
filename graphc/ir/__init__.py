"""The intermediate representation: types, graphs, programs, and their text and serial forms."""

from graphc.ir.graph import Graph as Graph
from graphc.ir.node import Node as Node
from graphc.ir.node import Tensor as Tensor
from graphc.ir.program import Program as Program
from graphc.ir.variable import Variable as Variable
