"""A compiler frontend for model graphs: define or import a graph, train it, ship it, serve it.

Only names stand here. Each is imported from its home when it is first used, so `import graphc`
loads nothing, and no part of graphc imports this module.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from graphc._version import __version__ as __version__

if TYPE_CHECKING:  # what `_HOMES` says, for editors and type checkers
    from graphc import data as data
    from graphc import devices as devices
    from graphc import errors as errors
    from graphc import nn as nn
    from graphc import passes as passes
    from graphc import train as train
    from graphc.artifacts import Signature as Signature
    from graphc.artifacts import load as load
    from graphc.artifacts import save as save
    from graphc.autodiff import gradients as gradients
    from graphc.build import TensorSpec as TensorSpec
    from graphc.build import add_to_collection as add_to_collection
    from graphc.build import control_dependencies as control_dependencies
    from graphc.build import device as device
    from graphc.build import name_scope as name_scope
    from graphc.build import placeholder as placeholder
    from graphc.build import trace as trace
    from graphc.build import trainable_variables as trainable_variables
    from graphc.build import variable as variable
    from graphc.config import CompileOptions as CompileOptions
    from graphc.ir import Graph as Graph
    from graphc.ir import Node as Node
    from graphc.ir import Program as Program
    from graphc.ir import Tensor as Tensor
    from graphc.ir import Variable as Variable
    from graphc.jaxpr import from_jax as from_jax
    from graphc.ops import abs as abs
    from graphc.ops import absolute as absolute
    from graphc.ops import acos as acos
    from graphc.ops import acosh as acosh
    from graphc.ops import add as add
    from graphc.ops import all as all
    from graphc.ops import any as any
    from graphc.ops import arange as arange
    from graphc.ops import arccos as arccos
    from graphc.ops import arccosh as arccosh
    from graphc.ops import arcsin as arcsin
    from graphc.ops import arcsinh as arcsinh
    from graphc.ops import arctan as arctan
    from graphc.ops import arctan2 as arctan2
    from graphc.ops import arctanh as arctanh
    from graphc.ops import argmax as argmax
    from graphc.ops import argmin as argmin
    from graphc.ops import argsort as argsort
    from graphc.ops import asin as asin
    from graphc.ops import asinh as asinh
    from graphc.ops import atan as atan
    from graphc.ops import atan2 as atan2
    from graphc.ops import atanh as atanh
    from graphc.ops import bitcast as bitcast
    from graphc.ops import bitwise_and as bitwise_and
    from graphc.ops import bitwise_not as bitwise_not
    from graphc.ops import bitwise_or as bitwise_or
    from graphc.ops import bitwise_xor as bitwise_xor
    from graphc.ops import broadcast_to as broadcast_to
    from graphc.ops import cast as cast
    from graphc.ops import ceil as ceil
    from graphc.ops import clip as clip
    from graphc.ops import complex as complex
    from graphc.ops import concatenate as concatenate
    from graphc.ops import conj as conj
    from graphc.ops import constant as constant
    from graphc.ops import cos as cos
    from graphc.ops import cosh as cosh
    from graphc.ops import cumsum as cumsum
    from graphc.ops import divide as divide
    from graphc.ops import dot_general as dot_general
    from graphc.ops import equal as equal
    from graphc.ops import erf as erf
    from graphc.ops import erfc as erfc
    from graphc.ops import erfinv as erfinv
    from graphc.ops import exp as exp
    from graphc.ops import expand_dims as expand_dims
    from graphc.ops import expm1 as expm1
    from graphc.ops import flatten as flatten
    from graphc.ops import flip as flip
    from graphc.ops import floor as floor
    from graphc.ops import floor_divide as floor_divide
    from graphc.ops import full as full
    from graphc.ops import full_like as full_like
    from graphc.ops import greater as greater
    from graphc.ops import greater_equal as greater_equal
    from graphc.ops import group as group
    from graphc.ops import identity as identity
    from graphc.ops import imag as imag
    from graphc.ops import iota as iota
    from graphc.ops import isfinite as isfinite
    from graphc.ops import isnan as isnan
    from graphc.ops import left_shift as left_shift
    from graphc.ops import less as less
    from graphc.ops import less_equal as less_equal
    from graphc.ops import log as log
    from graphc.ops import log1p as log1p
    from graphc.ops import log_softmax as log_softmax
    from graphc.ops import logical_and as logical_and
    from graphc.ops import logical_not as logical_not
    from graphc.ops import logical_or as logical_or
    from graphc.ops import logical_xor as logical_xor
    from graphc.ops import logsumexp as logsumexp
    from graphc.ops import matmul as matmul
    from graphc.ops import max as max
    from graphc.ops import maximum as maximum
    from graphc.ops import mean as mean
    from graphc.ops import min as min
    from graphc.ops import minimum as minimum
    from graphc.ops import mod as mod
    from graphc.ops import moveaxis as moveaxis
    from graphc.ops import multiply as multiply
    from graphc.ops import negative as negative
    from graphc.ops import not_equal as not_equal
    from graphc.ops import one_hot as one_hot
    from graphc.ops import ones as ones
    from graphc.ops import ones_like as ones_like
    from graphc.ops import pad as pad
    from graphc.ops import pow as pow
    from graphc.ops import power as power
    from graphc.ops import prod as prod
    from graphc.ops import random as random
    from graphc.ops import ravel as ravel
    from graphc.ops import real as real
    from graphc.ops import reciprocal as reciprocal
    from graphc.ops import reduce_all as reduce_all
    from graphc.ops import reduce_any as reduce_any
    from graphc.ops import reduce_max as reduce_max
    from graphc.ops import reduce_mean as reduce_mean
    from graphc.ops import reduce_min as reduce_min
    from graphc.ops import reduce_prod as reduce_prod
    from graphc.ops import reduce_sum as reduce_sum
    from graphc.ops import reduce_variance as reduce_variance
    from graphc.ops import remainder as remainder
    from graphc.ops import repeat as repeat
    from graphc.ops import reshape as reshape
    from graphc.ops import right_shift as right_shift
    from graphc.ops import round as round
    from graphc.ops import rsqrt as rsqrt
    from graphc.ops import scan as scan
    from graphc.ops import scatter_add as scatter_add
    from graphc.ops import sigmoid as sigmoid
    from graphc.ops import sign as sign
    from graphc.ops import sin as sin
    from graphc.ops import sinh as sinh
    from graphc.ops import size as size
    from graphc.ops import softmax as softmax
    from graphc.ops import softplus as softplus
    from graphc.ops import sort as sort
    from graphc.ops import split as split
    from graphc.ops import sqrt as sqrt
    from graphc.ops import square as square
    from graphc.ops import squeeze as squeeze
    from graphc.ops import stack as stack
    from graphc.ops import stop_gradient as stop_gradient
    from graphc.ops import subtract as subtract
    from graphc.ops import sum as sum
    from graphc.ops import swapaxes as swapaxes
    from graphc.ops import take as take
    from graphc.ops import take_along_axis as take_along_axis
    from graphc.ops import tan as tan
    from graphc.ops import tanh as tanh
    from graphc.ops import tile as tile
    from graphc.ops import top_k as top_k
    from graphc.ops import transpose as transpose
    from graphc.ops import true_divide as true_divide
    from graphc.ops import unstack as unstack
    from graphc.ops import var as var
    from graphc.ops import where as where
    from graphc.ops import zeros as zeros
    from graphc.ops import zeros_like as zeros_like
    from graphc.optim import minimize as minimize
    from graphc.runtime import Executable as Executable
    from graphc.runtime import Session as Session
    from graphc.runtime import State as State
    from graphc.runtime import compile as compile

# Each public name and its home, the submodule that has it; "." if it is a submodule itself.
_HOMES: Final[dict[str, str]] = {
    "CompileOptions": "config",
    "Executable": "runtime",
    "Graph": "ir",
    "Node": "ir",
    "Program": "ir",
    "Session": "runtime",
    "Signature": "artifacts",
    "State": "runtime",
    "Tensor": "ir",
    "TensorSpec": "build",
    "Variable": "ir",
    "abs": "ops",
    "absolute": "ops",
    "acos": "ops",
    "acosh": "ops",
    "add": "ops",
    "add_to_collection": "build",
    "all": "ops",
    "any": "ops",
    "arange": "ops",
    "arccos": "ops",
    "arccosh": "ops",
    "arcsin": "ops",
    "arcsinh": "ops",
    "arctan": "ops",
    "arctan2": "ops",
    "arctanh": "ops",
    "argmax": "ops",
    "argmin": "ops",
    "argsort": "ops",
    "asin": "ops",
    "asinh": "ops",
    "atan": "ops",
    "atan2": "ops",
    "atanh": "ops",
    "bitcast": "ops",
    "bitwise_and": "ops",
    "bitwise_not": "ops",
    "bitwise_or": "ops",
    "bitwise_xor": "ops",
    "broadcast_to": "ops",
    "cast": "ops",
    "ceil": "ops",
    "clip": "ops",
    "compile": "runtime",
    "complex": "ops",
    "concatenate": "ops",
    "conj": "ops",
    "constant": "ops",
    "control_dependencies": "build",
    "cos": "ops",
    "cosh": "ops",
    "cumsum": "ops",
    "data": ".",
    "device": "build",
    "devices": ".",
    "divide": "ops",
    "dot_general": "ops",
    "equal": "ops",
    "erf": "ops",
    "erfc": "ops",
    "erfinv": "ops",
    "errors": ".",
    "exp": "ops",
    "expand_dims": "ops",
    "expm1": "ops",
    "flatten": "ops",
    "flip": "ops",
    "floor": "ops",
    "floor_divide": "ops",
    "from_jax": "jaxpr",
    "full": "ops",
    "full_like": "ops",
    "gradients": "autodiff",
    "greater": "ops",
    "greater_equal": "ops",
    "group": "ops",
    "identity": "ops",
    "imag": "ops",
    "iota": "ops",
    "isfinite": "ops",
    "isnan": "ops",
    "left_shift": "ops",
    "less": "ops",
    "less_equal": "ops",
    "load": "artifacts",
    "log": "ops",
    "log1p": "ops",
    "log_softmax": "ops",
    "logical_and": "ops",
    "logical_not": "ops",
    "logical_or": "ops",
    "logical_xor": "ops",
    "logsumexp": "ops",
    "matmul": "ops",
    "max": "ops",
    "maximum": "ops",
    "mean": "ops",
    "min": "ops",
    "minimize": "optim",
    "minimum": "ops",
    "mod": "ops",
    "moveaxis": "ops",
    "multiply": "ops",
    "name_scope": "build",
    "negative": "ops",
    "nn": ".",
    "not_equal": "ops",
    "one_hot": "ops",
    "ones": "ops",
    "ones_like": "ops",
    "pad": "ops",
    "passes": ".",
    "placeholder": "build",
    "pow": "ops",
    "power": "ops",
    "prod": "ops",
    "random": "ops",
    "ravel": "ops",
    "real": "ops",
    "reciprocal": "ops",
    "reduce_all": "ops",
    "reduce_any": "ops",
    "reduce_max": "ops",
    "reduce_mean": "ops",
    "reduce_min": "ops",
    "reduce_prod": "ops",
    "reduce_sum": "ops",
    "reduce_variance": "ops",
    "remainder": "ops",
    "repeat": "ops",
    "reshape": "ops",
    "right_shift": "ops",
    "round": "ops",
    "rsqrt": "ops",
    "save": "artifacts",
    "scan": "ops",
    "scatter_add": "ops",
    "sigmoid": "ops",
    "sign": "ops",
    "sin": "ops",
    "sinh": "ops",
    "size": "ops",
    "softmax": "ops",
    "softplus": "ops",
    "sort": "ops",
    "split": "ops",
    "sqrt": "ops",
    "square": "ops",
    "squeeze": "ops",
    "stack": "ops",
    "stop_gradient": "ops",
    "subtract": "ops",
    "sum": "ops",
    "swapaxes": "ops",
    "take": "ops",
    "take_along_axis": "ops",
    "tan": "ops",
    "tanh": "ops",
    "tile": "ops",
    "top_k": "ops",
    "trace": "build",
    "train": ".",
    "trainable_variables": "build",
    "transpose": "ops",
    "true_divide": "ops",
    "unstack": "ops",
    "var": "ops",
    "variable": "build",
    "where": "ops",
    "zeros": "ops",
    "zeros_like": "ops",
}

__all__ = ["__version__", *_HOMES]

if not TYPE_CHECKING:  # hidden from type checkers, which would take any name for granted

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:  # `obj` lets Python add "Did you mean: ...?"
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[__name__])
        if home == ".":
            return import_module(f"{__name__}.{name}")
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value  # the next use does not come here
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
