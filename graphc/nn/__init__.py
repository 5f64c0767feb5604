"""Layers as objects that own variables, and the functions that neural networks are made of."""

import typing

from graphc.ir.calls import explain_all as _explain_all
from graphc.ir.namespaces import namespace as _namespace
from graphc.nn.functional.colors import *
from graphc.nn.functional.convolutions import *
from graphc.nn.functional.crf import *
from graphc.nn.functional.ctc import *
from graphc.nn.functional.ctc_decoding import *
from graphc.nn.functional.distances import *
from graphc.nn.functional.images import *
from graphc.nn.functional.losses import *
from graphc.nn.functional.masks import *
from graphc.nn.functional.nonlinear import *
from graphc.nn.functional.norms import *
from graphc.nn.functional.patches import *
from graphc.nn.functional.ranking import *
from graphc.nn.functional.sampled_losses import *
from graphc.nn.functional.unpooling import *
from graphc.nn.layers import activations as _activations
from graphc.nn.layers import initializers as initializers
from graphc.nn.layers.activations import *
from graphc.nn.layers.conv_layers import *
from graphc.nn.layers.depthwise_layers import *
from graphc.nn.layers.dropout import *
from graphc.nn.layers.layer import *
from graphc.nn.layers.linear import *
from graphc.nn.layers.normalization import *
from graphc.nn.layers.pool_layers import *
from graphc.nn.layers.positions import *
from graphc.nn.layers.regularizers import *
from graphc.nn.layers.samplers import *
from graphc.nn.layers.shaping import *
from graphc.nn.layers.spectral import *
from graphc.nn.layers.structure import *
from graphc.nn.recurrent.cells import *
from graphc.nn.recurrent.conv_lstm import *
from graphc.nn.recurrent.gated_cells import *
from graphc.nn.recurrent.recurrent_layers import *
from graphc.nn.recurrent.recurrent_nets import *
from graphc.nn.transformer.additive import *
from graphc.nn.transformer.multi_head import *
from graphc.nn.transformer.transformer import *
from graphc.ops.arrays.along_axis import one_hot as one_hot
from graphc.ops.draws.dropout import dropout as dropout
from graphc.ops.elementwise.activation import *
from graphc.ops.elementwise.transcendental import sigmoid as sigmoid
from graphc.ops.elementwise.transcendental import softplus as softplus
from graphc.ops.elementwise.transcendental import tanh as tanh
from graphc.ops.nn.attention import *
from graphc.ops.nn.conv import *
from graphc.ops.nn.local_response import *
from graphc.ops.nn.normalization import *
from graphc.ops.nn.pooling import *
from graphc.ops.tasks.ctc_beams import *
from graphc.ops.tasks.edit_distance import *
from graphc.ops.tasks.morphology import *
from graphc.ops.tasks.sampling import *
from graphc.ops.tasks.suppression import *

_explain_all(globals(), "graphc")
_activations.ACTIVATIONS.update({name: globals()[name] for name in _activations.ACTIVATIONS})

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace(__name__, globals(), ["initializers"])
