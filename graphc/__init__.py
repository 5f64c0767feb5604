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
    from graphc.artifacts import Limits as Limits
    from graphc.artifacts import Signature as Signature
    from graphc.artifacts import load as load
    from graphc.artifacts import save as save
    from graphc.autodiff import gradients as gradients
    from graphc.build import Graph as Graph
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
    from graphc.data import Bucketing as Bucketing
    from graphc.ir import Node as Node
    from graphc.ir import Program as Program
    from graphc.ir import Tensor as Tensor
    from graphc.ir import Variable as Variable
    from graphc.jaxpr import from_jax as from_jax
    from graphc.jaxpr import register_op as register_op
    from graphc.ops import abs as abs
    from graphc.ops import absolute as absolute
    from graphc.ops import acos as acos
    from graphc.ops import acosh as acosh
    from graphc.ops import add as add
    from graphc.ops import all as all
    from graphc.ops import allclose as allclose
    from graphc.ops import amax as amax
    from graphc.ops import amin as amin
    from graphc.ops import angle as angle
    from graphc.ops import any as any
    from graphc.ops import append as append
    from graphc.ops import approx_top_k as approx_top_k
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
    from graphc.ops import argpartition as argpartition
    from graphc.ops import argsort as argsort
    from graphc.ops import argwhere as argwhere
    from graphc.ops import around as around
    from graphc.ops import array_equal as array_equal
    from graphc.ops import array_split as array_split
    from graphc.ops import asin as asin
    from graphc.ops import asinh as asinh
    from graphc.ops import associative_scan as associative_scan
    from graphc.ops import atan as atan
    from graphc.ops import atan2 as atan2
    from graphc.ops import atanh as atanh
    from graphc.ops import atleast_1d as atleast_1d
    from graphc.ops import atleast_2d as atleast_2d
    from graphc.ops import atleast_3d as atleast_3d
    from graphc.ops import average as average
    from graphc.ops import betainc as betainc
    from graphc.ops import betaln as betaln
    from graphc.ops import bincount as bincount
    from graphc.ops import bitcast as bitcast
    from graphc.ops import bitwise_and as bitwise_and
    from graphc.ops import bitwise_count as bitwise_count
    from graphc.ops import bitwise_invert as bitwise_invert
    from graphc.ops import bitwise_not as bitwise_not
    from graphc.ops import bitwise_or as bitwise_or
    from graphc.ops import bitwise_xor as bitwise_xor
    from graphc.ops import block as block
    from graphc.ops import boxcox as boxcox
    from graphc.ops import broadcast_arrays as broadcast_arrays
    from graphc.ops import broadcast_shapes as broadcast_shapes
    from graphc.ops import broadcast_to as broadcast_to
    from graphc.ops import cast as cast
    from graphc.ops import cbrt as cbrt
    from graphc.ops import ceil as ceil
    from graphc.ops import choose as choose
    from graphc.ops import clip as clip
    from graphc.ops import column_stack as column_stack
    from graphc.ops import comb as comb
    from graphc.ops import complex as complex
    from graphc.ops import concat as concat
    from graphc.ops import concatenate as concatenate
    from graphc.ops import cond as cond
    from graphc.ops import conj as conj
    from graphc.ops import conjugate as conjugate
    from graphc.ops import constant as constant
    from graphc.ops import convolve as convolve
    from graphc.ops import copysign as copysign
    from graphc.ops import corrcoef as corrcoef
    from graphc.ops import correlate as correlate
    from graphc.ops import cos as cos
    from graphc.ops import cosh as cosh
    from graphc.ops import count_nonzero as count_nonzero
    from graphc.ops import cov as cov
    from graphc.ops import cross as cross
    from graphc.ops import cumlogsumexp as cumlogsumexp
    from graphc.ops import cummax as cummax
    from graphc.ops import cummin as cummin
    from graphc.ops import cumprod as cumprod
    from graphc.ops import cumsum as cumsum
    from graphc.ops import deg2rad as deg2rad
    from graphc.ops import degrees as degrees
    from graphc.ops import delete as delete
    from graphc.ops import dequantize as dequantize
    from graphc.ops import diag as diag
    from graphc.ops import diag_indices as diag_indices
    from graphc.ops import diagflat as diagflat
    from graphc.ops import diagonal as diagonal
    from graphc.ops import diff as diff
    from graphc.ops import digamma as digamma
    from graphc.ops import digitize as digitize
    from graphc.ops import divide as divide
    from graphc.ops import divmod as divmod
    from graphc.ops import dot as dot
    from graphc.ops import dot_general as dot_general
    from graphc.ops import dsplit as dsplit
    from graphc.ops import dstack as dstack
    from graphc.ops import dynamic_slice as dynamic_slice
    from graphc.ops import dynamic_update_slice as dynamic_update_slice
    from graphc.ops import ediff1d as ediff1d
    from graphc.ops import einsum as einsum
    from graphc.ops import entr as entr
    from graphc.ops import equal as equal
    from graphc.ops import erf as erf
    from graphc.ops import erfc as erfc
    from graphc.ops import erfinv as erfinv
    from graphc.ops import exp as exp
    from graphc.ops import exp1 as exp1
    from graphc.ops import exp2 as exp2
    from graphc.ops import expand_dims as expand_dims
    from graphc.ops import expi as expi
    from graphc.ops import expm1 as expm1
    from graphc.ops import expn as expn
    from graphc.ops import extract as extract
    from graphc.ops import eye as eye
    from graphc.ops import fabs as fabs
    from graphc.ops import factorial as factorial
    from graphc.ops import fake_quantize as fake_quantize
    from graphc.ops import fft as fft
    from graphc.ops import fix as fix
    from graphc.ops import flatnonzero as flatnonzero
    from graphc.ops import flatten as flatten
    from graphc.ops import flip as flip
    from graphc.ops import fliplr as fliplr
    from graphc.ops import flipud as flipud
    from graphc.ops import floor as floor
    from graphc.ops import floor_divide as floor_divide
    from graphc.ops import fmax as fmax
    from graphc.ops import fmin as fmin
    from graphc.ops import fmod as fmod
    from graphc.ops import fori_loop as fori_loop
    from graphc.ops import fresnel as fresnel
    from graphc.ops import frexp as frexp
    from graphc.ops import full as full
    from graphc.ops import full_like as full_like
    from graphc.ops import function as function
    from graphc.ops import gamma as gamma
    from graphc.ops import gammainc as gammainc
    from graphc.ops import gammaincc as gammaincc
    from graphc.ops import gammaln as gammaln
    from graphc.ops import gather_nd as gather_nd
    from graphc.ops import gcd as gcd
    from graphc.ops import geomspace as geomspace
    from graphc.ops import gradient as gradient
    from graphc.ops import greater as greater
    from graphc.ops import greater_equal as greater_equal
    from graphc.ops import group as group
    from graphc.ops import heaviside as heaviside
    from graphc.ops import histogram as histogram
    from graphc.ops import histogram_bin_edges as histogram_bin_edges
    from graphc.ops import hsplit as hsplit
    from graphc.ops import hstack as hstack
    from graphc.ops import hyp1f1 as hyp1f1
    from graphc.ops import hyp2f1 as hyp2f1
    from graphc.ops import hypot as hypot
    from graphc.ops import i0 as i0
    from graphc.ops import i0e as i0e
    from graphc.ops import i1 as i1
    from graphc.ops import i1e as i1e
    from graphc.ops import identity as identity
    from graphc.ops import imag as imag
    from graphc.ops import indices as indices
    from graphc.ops import inner as inner
    from graphc.ops import insert as insert
    from graphc.ops import interp as interp
    from graphc.ops import intersect1d as intersect1d
    from graphc.ops import invert as invert
    from graphc.ops import iota as iota
    from graphc.ops import isclose as isclose
    from graphc.ops import iscomplex as iscomplex
    from graphc.ops import isfinite as isfinite
    from graphc.ops import isin as isin
    from graphc.ops import isinf as isinf
    from graphc.ops import isnan as isnan
    from graphc.ops import isneginf as isneginf
    from graphc.ops import isposinf as isposinf
    from graphc.ops import isreal as isreal
    from graphc.ops import kl_div as kl_div
    from graphc.ops import kron as kron
    from graphc.ops import lcm as lcm
    from graphc.ops import ldexp as ldexp
    from graphc.ops import leading_zeros as leading_zeros
    from graphc.ops import left_shift as left_shift
    from graphc.ops import less as less
    from graphc.ops import less_equal as less_equal
    from graphc.ops import lexsort as lexsort
    from graphc.ops import linalg as linalg
    from graphc.ops import linspace as linspace
    from graphc.ops import log as log
    from graphc.ops import log1p as log1p
    from graphc.ops import log2 as log2
    from graphc.ops import log10 as log10
    from graphc.ops import log_ndtr as log_ndtr
    from graphc.ops import log_softmax as log_softmax
    from graphc.ops import logaddexp as logaddexp
    from graphc.ops import logaddexp2 as logaddexp2
    from graphc.ops import logical_and as logical_and
    from graphc.ops import logical_not as logical_not
    from graphc.ops import logical_or as logical_or
    from graphc.ops import logical_xor as logical_xor
    from graphc.ops import logit as logit
    from graphc.ops import logspace as logspace
    from graphc.ops import logsumexp as logsumexp
    from graphc.ops import map_fn as map_fn
    from graphc.ops import matmul as matmul
    from graphc.ops import matvec as matvec
    from graphc.ops import max as max
    from graphc.ops import maximum as maximum
    from graphc.ops import mean as mean
    from graphc.ops import median as median
    from graphc.ops import meshgrid as meshgrid
    from graphc.ops import min as min
    from graphc.ops import minimum as minimum
    from graphc.ops import mod as mod
    from graphc.ops import modf as modf
    from graphc.ops import moveaxis as moveaxis
    from graphc.ops import multiply as multiply
    from graphc.ops import nan_to_num as nan_to_num
    from graphc.ops import nanargmax as nanargmax
    from graphc.ops import nanargmin as nanargmin
    from graphc.ops import nancumsum as nancumsum
    from graphc.ops import nanmax as nanmax
    from graphc.ops import nanmean as nanmean
    from graphc.ops import nanmedian as nanmedian
    from graphc.ops import nanmin as nanmin
    from graphc.ops import nanpercentile as nanpercentile
    from graphc.ops import nanprod as nanprod
    from graphc.ops import nanquantile as nanquantile
    from graphc.ops import nanstd as nanstd
    from graphc.ops import nansum as nansum
    from graphc.ops import nanvar as nanvar
    from graphc.ops import ndtr as ndtr
    from graphc.ops import ndtri as ndtri
    from graphc.ops import negative as negative
    from graphc.ops import nextafter as nextafter
    from graphc.ops import nonzero as nonzero
    from graphc.ops import not_equal as not_equal
    from graphc.ops import one_hot as one_hot
    from graphc.ops import ones as ones
    from graphc.ops import ones_like as ones_like
    from graphc.ops import outer as outer
    from graphc.ops import pad as pad
    from graphc.ops import partition as partition
    from graphc.ops import percentile as percentile
    from graphc.ops import permute_dims as permute_dims
    from graphc.ops import piecewise as piecewise
    from graphc.ops import poch as poch
    from graphc.ops import polyadd as polyadd
    from graphc.ops import polyder as polyder
    from graphc.ops import polygamma as polygamma
    from graphc.ops import polyint as polyint
    from graphc.ops import polymul as polymul
    from graphc.ops import polysub as polysub
    from graphc.ops import polyval as polyval
    from graphc.ops import population_count as population_count
    from graphc.ops import positive as positive
    from graphc.ops import pow as pow
    from graphc.ops import power as power
    from graphc.ops import print as print
    from graphc.ops import prod as prod
    from graphc.ops import ptp as ptp
    from graphc.ops import put_along_axis as put_along_axis
    from graphc.ops import py_callback as py_callback
    from graphc.ops import quantile as quantile
    from graphc.ops import quantize as quantize
    from graphc.ops import rad2deg as rad2deg
    from graphc.ops import radians as radians
    from graphc.ops import ragged_dot as ragged_dot
    from graphc.ops import random as random
    from graphc.ops import ravel as ravel
    from graphc.ops import ravel_multi_index as ravel_multi_index
    from graphc.ops import real as real
    from graphc.ops import reciprocal as reciprocal
    from graphc.ops import reduce_all as reduce_all
    from graphc.ops import reduce_any as reduce_any
    from graphc.ops import reduce_max as reduce_max
    from graphc.ops import reduce_mean as reduce_mean
    from graphc.ops import reduce_min as reduce_min
    from graphc.ops import reduce_precision as reduce_precision
    from graphc.ops import reduce_prod as reduce_prod
    from graphc.ops import reduce_sum as reduce_sum
    from graphc.ops import reduce_variance as reduce_variance
    from graphc.ops import rel_entr as rel_entr
    from graphc.ops import remainder as remainder
    from graphc.ops import repeat as repeat
    from graphc.ops import reshape as reshape
    from graphc.ops import right_shift as right_shift
    from graphc.ops import rint as rint
    from graphc.ops import roll as roll
    from graphc.ops import rot90 as rot90
    from graphc.ops import round as round
    from graphc.ops import rsqrt as rsqrt
    from graphc.ops import scan as scan
    from graphc.ops import scatter as scatter
    from graphc.ops import scatter_add as scatter_add
    from graphc.ops import scatter_nd as scatter_nd
    from graphc.ops import searchsorted as searchsorted
    from graphc.ops import segment_max as segment_max
    from graphc.ops import segment_mean as segment_mean
    from graphc.ops import segment_min as segment_min
    from graphc.ops import segment_prod as segment_prod
    from graphc.ops import segment_sum as segment_sum
    from graphc.ops import select as select
    from graphc.ops import setdiff1d as setdiff1d
    from graphc.ops import setxor1d as setxor1d
    from graphc.ops import shard as shard
    from graphc.ops import sici as sici
    from graphc.ops import sigmoid as sigmoid
    from graphc.ops import sign as sign
    from graphc.ops import signbit as signbit
    from graphc.ops import sin as sin
    from graphc.ops import sinc as sinc
    from graphc.ops import sinh as sinh
    from graphc.ops import size as size
    from graphc.ops import softmax as softmax
    from graphc.ops import softplus as softplus
    from graphc.ops import sort as sort
    from graphc.ops import sort_together as sort_together
    from graphc.ops import spence as spence
    from graphc.ops import split as split
    from graphc.ops import sqrt as sqrt
    from graphc.ops import square as square
    from graphc.ops import squeeze as squeeze
    from graphc.ops import stack as stack
    from graphc.ops import std as std
    from graphc.ops import stop_gradient as stop_gradient
    from graphc.ops import subtract as subtract
    from graphc.ops import sum as sum
    from graphc.ops import swapaxes as swapaxes
    from graphc.ops import switch as switch
    from graphc.ops import take as take
    from graphc.ops import take_along_axis as take_along_axis
    from graphc.ops import tan as tan
    from graphc.ops import tanh as tanh
    from graphc.ops import tensordot as tensordot
    from graphc.ops import tile as tile
    from graphc.ops import top_k as top_k
    from graphc.ops import transpose as transpose
    from graphc.ops import trapezoid as trapezoid
    from graphc.ops import tri as tri
    from graphc.ops import tril as tril
    from graphc.ops import tril_indices as tril_indices
    from graphc.ops import tril_indices_from as tril_indices_from
    from graphc.ops import triu as triu
    from graphc.ops import triu_indices as triu_indices
    from graphc.ops import triu_indices_from as triu_indices_from
    from graphc.ops import true_divide as true_divide
    from graphc.ops import trunc as trunc
    from graphc.ops import union1d as union1d
    from graphc.ops import unique as unique
    from graphc.ops import unravel_index as unravel_index
    from graphc.ops import unstack as unstack
    from graphc.ops import unwrap as unwrap
    from graphc.ops import vander as vander
    from graphc.ops import var as var
    from graphc.ops import vdot as vdot
    from graphc.ops import vecdot as vecdot
    from graphc.ops import vecmat as vecmat
    from graphc.ops import vsplit as vsplit
    from graphc.ops import vstack as vstack
    from graphc.ops import where as where
    from graphc.ops import while_loop as while_loop
    from graphc.ops import xlog1py as xlog1py
    from graphc.ops import xlogy as xlogy
    from graphc.ops import zeros as zeros
    from graphc.ops import zeros_like as zeros_like
    from graphc.ops import zeta as zeta
    from graphc.optim import minimize as minimize
    from graphc.runtime import Executable as Executable
    from graphc.runtime import Session as Session
    from graphc.runtime import State as State
    from graphc.runtime import compile as compile
    from graphc.runtime import compile_async as compile_async
    from graphc.runtime import freeze as freeze
    from graphc.runtime import to_jax as to_jax
    from graphc.runtime import tune as tune

# Each public name and its home, the submodule that has it; "." if it is a submodule itself.
_HOMES: Final[dict[str, str]] = {
    "Bucketing": "data",
    "CompileOptions": "config",
    "Executable": "runtime",
    "Graph": "build",
    "Limits": "artifacts",
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
    "allclose": "ops",
    "amax": "ops",
    "amin": "ops",
    "angle": "ops",
    "any": "ops",
    "append": "ops",
    "approx_top_k": "ops",
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
    "argpartition": "ops",
    "argsort": "ops",
    "argwhere": "ops",
    "around": "ops",
    "array_equal": "ops",
    "array_split": "ops",
    "asin": "ops",
    "asinh": "ops",
    "associative_scan": "ops",
    "atan": "ops",
    "atan2": "ops",
    "atanh": "ops",
    "atleast_1d": "ops",
    "atleast_2d": "ops",
    "atleast_3d": "ops",
    "average": "ops",
    "betainc": "ops",
    "betaln": "ops",
    "bincount": "ops",
    "bitcast": "ops",
    "bitwise_and": "ops",
    "bitwise_count": "ops",
    "bitwise_invert": "ops",
    "bitwise_not": "ops",
    "bitwise_or": "ops",
    "bitwise_xor": "ops",
    "block": "ops",
    "boxcox": "ops",
    "broadcast_arrays": "ops",
    "broadcast_shapes": "ops",
    "broadcast_to": "ops",
    "cast": "ops",
    "cbrt": "ops",
    "ceil": "ops",
    "choose": "ops",
    "clip": "ops",
    "column_stack": "ops",
    "comb": "ops",
    "compile": "runtime",
    "compile_async": "runtime",
    "complex": "ops",
    "concat": "ops",
    "concatenate": "ops",
    "cond": "ops",
    "conj": "ops",
    "conjugate": "ops",
    "constant": "ops",
    "control_dependencies": "build",
    "convolve": "ops",
    "copysign": "ops",
    "corrcoef": "ops",
    "correlate": "ops",
    "cos": "ops",
    "cosh": "ops",
    "count_nonzero": "ops",
    "cov": "ops",
    "cross": "ops",
    "cumlogsumexp": "ops",
    "cummax": "ops",
    "cummin": "ops",
    "cumprod": "ops",
    "cumsum": "ops",
    "data": ".",
    "deg2rad": "ops",
    "degrees": "ops",
    "delete": "ops",
    "dequantize": "ops",
    "device": "build",
    "devices": ".",
    "diag": "ops",
    "diag_indices": "ops",
    "diagflat": "ops",
    "diagonal": "ops",
    "diff": "ops",
    "digamma": "ops",
    "digitize": "ops",
    "divide": "ops",
    "divmod": "ops",
    "dot": "ops",
    "dot_general": "ops",
    "dsplit": "ops",
    "dstack": "ops",
    "dynamic_slice": "ops",
    "dynamic_update_slice": "ops",
    "ediff1d": "ops",
    "einsum": "ops",
    "entr": "ops",
    "equal": "ops",
    "erf": "ops",
    "erfc": "ops",
    "erfinv": "ops",
    "errors": ".",
    "exp": "ops",
    "exp1": "ops",
    "exp2": "ops",
    "expand_dims": "ops",
    "expi": "ops",
    "expm1": "ops",
    "expn": "ops",
    "extract": "ops",
    "eye": "ops",
    "fabs": "ops",
    "factorial": "ops",
    "fake_quantize": "ops",
    "fft": "ops",
    "fix": "ops",
    "flatnonzero": "ops",
    "flatten": "ops",
    "flip": "ops",
    "fliplr": "ops",
    "flipud": "ops",
    "floor": "ops",
    "floor_divide": "ops",
    "fmax": "ops",
    "fmin": "ops",
    "fmod": "ops",
    "fori_loop": "ops",
    "freeze": "runtime",
    "fresnel": "ops",
    "frexp": "ops",
    "from_jax": "jaxpr",
    "full": "ops",
    "full_like": "ops",
    "function": "ops",
    "gamma": "ops",
    "gammainc": "ops",
    "gammaincc": "ops",
    "gammaln": "ops",
    "gather_nd": "ops",
    "gcd": "ops",
    "geomspace": "ops",
    "gradient": "ops",
    "gradients": "autodiff",
    "greater": "ops",
    "greater_equal": "ops",
    "group": "ops",
    "heaviside": "ops",
    "histogram": "ops",
    "histogram_bin_edges": "ops",
    "hsplit": "ops",
    "hstack": "ops",
    "hyp1f1": "ops",
    "hyp2f1": "ops",
    "hypot": "ops",
    "i0": "ops",
    "i0e": "ops",
    "i1": "ops",
    "i1e": "ops",
    "identity": "ops",
    "imag": "ops",
    "indices": "ops",
    "inner": "ops",
    "insert": "ops",
    "interp": "ops",
    "intersect1d": "ops",
    "invert": "ops",
    "iota": "ops",
    "isclose": "ops",
    "iscomplex": "ops",
    "isfinite": "ops",
    "isin": "ops",
    "isinf": "ops",
    "isnan": "ops",
    "isneginf": "ops",
    "isposinf": "ops",
    "isreal": "ops",
    "kl_div": "ops",
    "kron": "ops",
    "lcm": "ops",
    "ldexp": "ops",
    "leading_zeros": "ops",
    "left_shift": "ops",
    "less": "ops",
    "less_equal": "ops",
    "lexsort": "ops",
    "linalg": "ops",
    "linspace": "ops",
    "load": "artifacts",
    "log": "ops",
    "log10": "ops",
    "log1p": "ops",
    "log2": "ops",
    "log_ndtr": "ops",
    "log_softmax": "ops",
    "logaddexp": "ops",
    "logaddexp2": "ops",
    "logical_and": "ops",
    "logical_not": "ops",
    "logical_or": "ops",
    "logical_xor": "ops",
    "logit": "ops",
    "logspace": "ops",
    "logsumexp": "ops",
    "map_fn": "ops",
    "matmul": "ops",
    "matvec": "ops",
    "max": "ops",
    "maximum": "ops",
    "mean": "ops",
    "median": "ops",
    "meshgrid": "ops",
    "min": "ops",
    "minimize": "optim",
    "minimum": "ops",
    "mod": "ops",
    "modf": "ops",
    "moveaxis": "ops",
    "multiply": "ops",
    "name_scope": "build",
    "nan_to_num": "ops",
    "nanargmax": "ops",
    "nanargmin": "ops",
    "nancumsum": "ops",
    "nanmax": "ops",
    "nanmean": "ops",
    "nanmedian": "ops",
    "nanmin": "ops",
    "nanpercentile": "ops",
    "nanprod": "ops",
    "nanquantile": "ops",
    "nanstd": "ops",
    "nansum": "ops",
    "nanvar": "ops",
    "ndtr": "ops",
    "ndtri": "ops",
    "negative": "ops",
    "nextafter": "ops",
    "nn": ".",
    "nonzero": "ops",
    "not_equal": "ops",
    "one_hot": "ops",
    "ones": "ops",
    "ones_like": "ops",
    "outer": "ops",
    "pad": "ops",
    "passes": ".",
    "partition": "ops",
    "percentile": "ops",
    "permute_dims": "ops",
    "piecewise": "ops",
    "placeholder": "build",
    "poch": "ops",
    "polyadd": "ops",
    "polyder": "ops",
    "polygamma": "ops",
    "polyint": "ops",
    "polymul": "ops",
    "polysub": "ops",
    "polyval": "ops",
    "population_count": "ops",
    "positive": "ops",
    "pow": "ops",
    "power": "ops",
    "print": "ops",
    "prod": "ops",
    "ptp": "ops",
    "put_along_axis": "ops",
    "py_callback": "ops",
    "quantile": "ops",
    "quantize": "ops",
    "rad2deg": "ops",
    "radians": "ops",
    "ragged_dot": "ops",
    "random": "ops",
    "ravel": "ops",
    "ravel_multi_index": "ops",
    "real": "ops",
    "reciprocal": "ops",
    "reduce_all": "ops",
    "reduce_any": "ops",
    "reduce_max": "ops",
    "reduce_mean": "ops",
    "reduce_min": "ops",
    "reduce_precision": "ops",
    "reduce_prod": "ops",
    "reduce_sum": "ops",
    "reduce_variance": "ops",
    "register_op": "jaxpr",
    "rel_entr": "ops",
    "remainder": "ops",
    "repeat": "ops",
    "reshape": "ops",
    "right_shift": "ops",
    "rint": "ops",
    "roll": "ops",
    "rot90": "ops",
    "round": "ops",
    "rsqrt": "ops",
    "save": "artifacts",
    "scan": "ops",
    "scatter": "ops",
    "scatter_add": "ops",
    "scatter_nd": "ops",
    "searchsorted": "ops",
    "segment_max": "ops",
    "segment_mean": "ops",
    "segment_min": "ops",
    "segment_prod": "ops",
    "segment_sum": "ops",
    "select": "ops",
    "setdiff1d": "ops",
    "setxor1d": "ops",
    "shard": "ops",
    "sici": "ops",
    "sigmoid": "ops",
    "sign": "ops",
    "signbit": "ops",
    "sin": "ops",
    "sinc": "ops",
    "sinh": "ops",
    "size": "ops",
    "softmax": "ops",
    "softplus": "ops",
    "sort": "ops",
    "sort_together": "ops",
    "spence": "ops",
    "split": "ops",
    "sqrt": "ops",
    "square": "ops",
    "squeeze": "ops",
    "stack": "ops",
    "std": "ops",
    "stop_gradient": "ops",
    "subtract": "ops",
    "sum": "ops",
    "swapaxes": "ops",
    "switch": "ops",
    "take": "ops",
    "take_along_axis": "ops",
    "tan": "ops",
    "tanh": "ops",
    "tensordot": "ops",
    "tile": "ops",
    "to_jax": "runtime",
    "top_k": "ops",
    "trace": "build",
    "train": ".",
    "trainable_variables": "build",
    "transpose": "ops",
    "trapezoid": "ops",
    "tri": "ops",
    "tril": "ops",
    "tril_indices": "ops",
    "tril_indices_from": "ops",
    "triu": "ops",
    "triu_indices": "ops",
    "triu_indices_from": "ops",
    "true_divide": "ops",
    "trunc": "ops",
    "tune": "runtime",
    "union1d": "ops",
    "unique": "ops",
    "unravel_index": "ops",
    "unstack": "ops",
    "unwrap": "ops",
    "vander": "ops",
    "var": "ops",
    "variable": "build",
    "vdot": "ops",
    "vecdot": "ops",
    "vecmat": "ops",
    "vsplit": "ops",
    "vstack": "ops",
    "where": "ops",
    "while_loop": "ops",
    "xlog1py": "ops",
    "xlogy": "ops",
    "zeros": "ops",
    "zeros_like": "ops",
    "zeta": "ops",
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
