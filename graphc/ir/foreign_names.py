"""What TensorFlow, Keras, PyTorch and NumPy call things that have another name here.

A wrong name gets an answer: the name that graphc uses, or the nearest known name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from graphc.errors import UnknownAttributeError, nearest
from graphc.ir.source import current_source

# What stands behind a tensor's dot elsewhere -> what to write.
ATTRIBUTES: Final[dict[str, str]] = {
    "append": "gc.concatenate([x, more])",
    "backward": "gc.gradients(loss, variables) or gc.minimize(loss, optimizer)",
    "bool": 'x.astype("bool")',
    "chunk": "gc.split(x, sections, axis)",
    "contiguous": "x: tensors have no memory order",
    "copy": "x: a tensor never changes",
    "cpu": "x: values move to the host when session.run returns them",
    "cuda": 'with gc.device("/gpu:0"): when the node is made',
    "detach": "gc.stop_gradient(x)",
    "dim": "x.ndim",
    "double": 'x.astype("float64")',
    "eval": "session.run(x)",
    "expand": "gc.broadcast_to(x, shape)",
    "expand_dims": "gc.expand_dims(x, axis)",
    "float": 'x.astype("float32")',
    "get_shape": "x.shape",
    "grad": "gc.gradients(loss, variables)",
    "half": 'x.astype("float16")',
    "int": 'x.astype("int32")',
    "item": "session.run(x), which returns an array; its item() is a number",
    "long": 'x.astype("int64")',
    "masked_fill": "gc.where(mask, value, x)",
    "matmul": "x @ y",
    "norm": "gc.linalg.norm(x)",
    "numpy": "session.run(x)",
    "op": "x.node",
    "permute": "x.transpose(axes)",
    "pow": "x ** y",
    "requires_grad": "gc.variable(initial, trainable=True)",
    "set_shape": "gc.reshape(x, shape)",
    "softmax": "gc.softmax(x, axis)",
    "sqrt": "gc.sqrt(x)",
    "to": "x.astype(dtype), or gc.device(name) when the node is made",
    "tolist": "session.run(x).tolist()",
    "topk": "gc.top_k(x, k)",
    "type_as": "x.astype(y.dtype)",
    "unsqueeze": "gc.expand_dims(x, axis)",
    "value": "x.read() of a variable; session.run(x) gives numbers",
    "view": "x.reshape(shape)",
}

# Functions and classes of other libraries -> what to write.
FUNCTIONS: Final[dict[str, str]] = {
    "AveragePooling1D": "gc.nn.AveragePool1D",
    "AveragePooling2D": "gc.nn.AveragePool2D",
    "AveragePooling3D": "gc.nn.AveragePool3D",
    "BatchNormalization": "gc.nn.BatchNorm(...)",
    "ConfigProto": "gc.CompileOptions",
    "CrossEntropyLoss": "gc.nn.sparse_softmax_cross_entropy(labels=..., logits=...)",
    "GlobalAveragePooling2D": "gc.nn.GlobalAveragePool()",
    "GlobalMaxPooling2D": "gc.nn.GlobalMaxPool()",
    "GradientTape": "gc.gradients(loss, variables)",
    "InteractiveSession": "gc.Session(graph)",
    "LayerNormalization": "gc.nn.LayerNorm()",
    "MSELoss": "gc.reduce_mean((y - t) ** 2)",
    "MaxPooling1D": "gc.nn.MaxPool1D",
    "MaxPooling2D": "gc.nn.MaxPool2D",
    "MaxPooling3D": "gc.nn.MaxPool3D",
    "Module": "gc.nn.Layer, or any function of tensors",
    "Parameter": "gc.variable(initial)",
    "Placeholder": "gc.placeholder(shape, dtype)",
    "SpatialDropout1D": "gc.nn.SpatialDropout(rate)",
    "SpatialDropout2D": "gc.nn.SpatialDropout(rate)",
    "SpatialDropout3D": "gc.nn.SpatialDropout(rate)",
    "SpectralNormalization": "gc.nn.SpectralNorm(layer)",
    "Upsample": "gc.nn.UpSampling2D(size)",
    "ZeroPad2d": "gc.nn.ZeroPadding2D(amount)",
    "as_tensor": "gc.constant(value)",
    "cat": "gc.concatenate(tensors, axis)",
    "convert_to_tensor": "gc.constant(value)",
    "device_put": "gc.device(name)",
    "dynamic_rnn": "gc.nn.RNN(cell)",
    "from_numpy": "gc.constant(value)",
    "get_default_graph": "`with graph:`; a tensor knows its graph as x.graph",
    "get_variable": "gc.variable(initial, name=...)",
    "global_variables_initializer": "nothing: a session begins with the initial values",
    "grad": "gc.gradients(loss, variables)",
    "initialize_all_variables": "nothing: a session begins with the initial values",
    "jit": "gc.compile(graph, fetches)",
    "learned_unigram_candidate_sampler": "gc.nn.log_uniform_candidate_sampler",
    "lgamma": "gc.gammaln(x)",
    "log_sum_exp": "gc.logsumexp(x, axis)",
    "manual_seed": "gc.Graph(seed=...) or seed= of the function that draws",
    "mm": "gc.matmul(a, b)",
    "mul": "gc.multiply(a, b)",
    "no_grad": "gc.stop_gradient(x)",
    "permute": "gc.transpose(x, axes)",
    "reduce_logsumexp": "gc.logsumexp(x, axis)",
    "reset_default_graph": "nothing: each gc.Graph() is new",
    "scatter_nd_update": "x.at[index].set(values)",
    "set_random_seed": "gc.Graph(seed=...)",
    "sub": "gc.subtract(a, b)",
    "tensor": "gc.constant(value)",
    "to_float": 'gc.cast(x, "float32")',
    "to_int32": 'gc.cast(x, "int32")',
    "topk": "gc.top_k(x, k)",
    "unsqueeze": "gc.expand_dims(x, axis)",
    "variable_scope": "gc.name_scope(name)",
    "view": "gc.reshape(x, shape)",
    "weighted_cross_entropy_with_logits": "gc.nn.weighted_cross_entropy",
    "while": "gc.while_loop(condition, body, initial)",
}

# Arguments of other libraries -> the arguments that mean the same.
KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "a": ("x",),
    "axes": ("axis",),
    "bias": ("use_bias",),
    "clip_value_max": ("hi", "max"),
    "clip_value_min": ("lo", "min"),
    "cropping": ("amount",),
    "data": ("x", "value"),
    "depth_multiplier": ("multiplier",),
    "depthwise_filter": ("depthwise",),
    "dilation_rate": ("dilation",),
    "dilations": ("dilation",),
    "dim": ("axis", "axes"),
    "dims": ("axis", "axes", "shape"),
    "embeddings_initializer": ("initializer",),
    "embeddings_regularizer": ("regularizer",),
    "feed_dict": ("feeds",),
    "filters": ("features", "w"),
    "in_channels": ("features",),
    "in_features": ("features",),
    "input": ("x", "inputs"),
    "input_tensor": ("x",),
    "inputs": ("x",),
    "interpolation": ("method",),
    "keep_dims": ("keepdims",),
    "keepdim": ("keepdims",),
    "kernel": ("w", "kernel_size"),
    "ksize": ("window",),
    "logits": ("logits", "x"),
    "n_power_iterations": ("iterations",),
    "num_classes": ("classes", "depth"),
    "num_outputs": ("features", "units"),
    "num_sampled": ("samples",),
    "out_channels": ("features", "units"),
    "out_features": ("features", "units"),
    "p": ("rate",),
    "pointwise_filter": ("pointwise",),
    "pool_size": ("window",),
    "power_iterations": ("iterations",),
    "range_max": ("classes",),
    "reduction_indices": ("axis",),
    "sampled_values": ("candidates",),
    "scale_factor": ("size",),
    "size": ("shape", "window"),
    "stride": ("strides",),
    "target_shape": ("shape",),
    "tensor": ("x",),
    "true_classes": ("labels",),
    "units": ("features",),
    "values": ("tensors", "x"),
}


def no_attribute(owner: Any, name: str) -> AttributeError:
    """The error for an attribute that a tensor or a variable does not have."""
    kind = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=owner)
    return UnknownAttributeError(
        f"{owner!r} has no attribute {name!r}",
        source=current_source(),
        hint=_advice(name, ATTRIBUTES, dir(type(owner))),
    )


def no_function(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a public module does not have."""
    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return UnknownAttributeError(
        f"module {module!r} has no attribute {name!r}",
        source=current_source(),
        hint=_advice(name, FUNCTIONS, known),
    )


def _advice(name: str, foreign: dict[str, str], known: Iterable[str]) -> str | None:
    if name in foreign:
        return f"write {foreign[name]}"
    public = [k for k in known if not k.startswith("_")]
    by_case = {k.lower().replace("_", ""): k for k in public}
    same = by_case.get(name.lower().replace("_", ""))
    return f"did you mean {same!r}?" if same else nearest(name, public)


def nearest_keyword(name: str, known: Iterable[str]) -> str | None:
    """A `hint` line for an unknown argument: what it is called here, or the nearest one."""
    names = list(known)
    if name == "keep_prob" and "rate" in names:
        return "rate= is the probability of zero: rate = 1 - keep_prob"
    for other in KEYWORDS.get(name, ()):
        if other in names:
            return f"it is called {other}= here"
    return nearest(name, names)
