"""Functions for building graphs: placeholders, variables, scopes and collections."""

from graphc.build import pickling as pickling
from graphc.build.context import add_to_collection as add_to_collection
from graphc.build.context import collection as collection
from graphc.build.context import control_dependencies as control_dependencies
from graphc.build.initializers import INITIALIZERS as INITIALIZERS
from graphc.build.placeholders import placeholder as placeholder
from graphc.build.placeholders import trace as trace
from graphc.build.specs import TensorSpec as TensorSpec
from graphc.build.trees import assign as assign
from graphc.build.trees import variables as variables
from graphc.build.variable_definition import initial_value as initial_value
from graphc.build.variable_definition import trainable_variables as trainable_variables
from graphc.build.variable_definition import variable as variable
from graphc.ir.graph import Graph as Graph
from graphc.ir.scopes import device as device
from graphc.ir.scopes import name_scope as name_scope
from graphc.ops.core.emit import constant as constant
from graphc.ops.structure.state import group as group
