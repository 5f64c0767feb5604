"""Functions for building graphs: placeholders, variables, scopes and collections."""

from graphc.build import pickling as pickling
from graphc.build.context import add_to_collection, collection, control_dependencies
from graphc.build.initializers import INITIALIZERS
from graphc.build.placeholders import placeholder, trace
from graphc.build.specs import TensorSpec
from graphc.build.variables import initial_value, trainable_variables, variable
from graphc.ir.graph import Graph
from graphc.ir.scopes import device, name_scope
from graphc.ops.core.emit import constant
from graphc.ops.structure.state import group

__all__ = [
    "INITIALIZERS",
    "Graph",
    "TensorSpec",
    "add_to_collection",
    "collection",
    "constant",
    "control_dependencies",
    "device",
    "group",
    "initial_value",
    "name_scope",
    "placeholder",
    "trace",
    "trainable_variables",
    "variable",
]
