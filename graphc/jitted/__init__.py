"""`gc.jit`: JAX functions that graphc compiles. `jaxpr` turns them into nodes."""

from graphc.jitted.entry import jit as jit
from graphc.jitted.function import JittedFunction as JittedFunction
from graphc.jitted.packed import PackedTree as PackedTree
from graphc.jitted.packed import unpack as unpack
from graphc.jitted.saving import SavedFunction as SavedFunction
from graphc.jitted.saving import load_function as load_function
