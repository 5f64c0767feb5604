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
    "AdagradOptimizer": "gc.minimize(loss, optax.adagrad(rate))",
    "Adam": "optax.adam(rate)",
    "AdamOptimizer": "gc.minimize(loss, optax.adam(rate))",
    "AdamW": "optax.adamw(rate)",
    "AveragePooling1D": "gc.nn.AveragePool1D",
    "AveragePooling2D": "gc.nn.AveragePool2D",
    "AveragePooling3D": "gc.nn.AveragePool3D",
    "BatchNormalization": "gc.nn.BatchNorm(...)",
    "Checkpoint": "np.savez(path, **session.values()), or gc.save(session, path, signatures=...)",
    "CheckpointManager": "np.savez(path, **session.values())",
    "ConfigProto": "gc.CompileOptions",
    "Coordinator": "gc.data.prefetch(batches, session)",
    "CrossEntropyLoss": "gc.nn.sparse_softmax_cross_entropy(labels=..., logits=...)",
    "DataLoader": "gc.data.Batches(arrays, batch), or any iterable of feeds",
    "Dataset": "gc.data.Batches(arrays, batch), or any iterable of feeds",
    "EarlyStopping": "a loop: see docs/recipes.md",
    "ExponentialMovingAverage": "gc.train.moving_averages(decay)",
    "GlobalAveragePooling2D": "gc.nn.GlobalAveragePool()",
    "GlobalMaxPooling2D": "gc.nn.GlobalMaxPool()",
    "GlorotNormalInitializer": "GlorotNormal()",
    "GradientDescentOptimizer": "gc.minimize(loss, optax.sgd(rate))",
    "GradientTape": "gc.gradients(loss, variables)",
    "InteractiveSession": "gc.Session(graph)",
    "KaimingNormal": "HeNormal()",
    "KaimingUniform": "HeUniform()",
    "LayerNormalization": "gc.nn.LayerNorm()",
    "MSELoss": "gc.reduce_mean((y - t) ** 2)",
    "MaxPooling1D": "gc.nn.MaxPool1D",
    "MaxPooling2D": "gc.nn.MaxPool2D",
    "MaxPooling3D": "gc.nn.MaxPool3D",
    "MirroredStrategy": "gc.devices.DataParallel(n)",
    "Module": "gc.nn.Layer, or any function of tensors",
    "MomentumOptimizer": "gc.minimize(loss, optax.sgd(rate, momentum))",
    "MonitoredTrainingSession": "gc.train.fit(session, job)",
    "PRNGKey": "gc.random.random_key(seed)",
    "Parameter": "gc.variable(initial)",
    "Placeholder": "gc.placeholder(shape, dtype)",
    "RMSPropOptimizer": "gc.minimize(loss, optax.rmsprop(rate))",
    "RMSprop": "optax.rmsprop(rate)",
    "RandomNormal": "Normal(stddev)",
    "RandomUniform": "Uniform(low, high)",
    "SGD": "optax.sgd(rate)",
    "Saver": "np.savez(path, **session.values()), or gc.save(session, path, signatures=...)",
    "SpatialDropout1D": "gc.nn.SpatialDropout(rate)",
    "SpatialDropout2D": "gc.nn.SpatialDropout(rate)",
    "SpatialDropout3D": "gc.nn.SpatialDropout(rate)",
    "SpectralNormalization": "gc.nn.SpectralNorm(layer)",
    "TensorDataset": "gc.data.Batches(arrays, batch)",
    "Upsample": "gc.nn.UpSampling2D(size)",
    "VarianceScaling": "HeNormal(), LecunNormal() or GlorotNormal()",
    "Xavier": "GlorotUniform()",
    "XavierNormal": "GlorotNormal()",
    "XavierUniform": "GlorotUniform()",
    "ZeroPad2d": "gc.nn.ZeroPadding2D(amount)",
    "as_tensor": "gc.constant(value)",
    "batch": "gc.data.Batches(arrays, batch)",
    "cat": "gc.concatenate(tensors, axis)",
    "convert_to_tensor": "gc.constant(value)",
    "default_rng": "gc.Graph(seed=...) or seed= of the function that draws",
    "device_count": "len(gc.devices.available())",
    "device_put": "gc.device(name)",
    "dynamic_rnn": "gc.nn.RNN(cell)",
    "exponential_decay": "optax.exponential_decay(...) as the rate",
    "from_numpy": "gc.constant(value)",
    "get_default_graph": "`with graph:`; a tensor knows its graph as x.graph",
    "get_variable": "gc.variable(initial, name=...)",
    "global_variables_initializer": "nothing: a session begins with the initial values",
    "grad": "gc.gradients(loss, variables)",
    "initialize_all_variables": "nothing: a session begins with the initial values",
    "inverse": "gc.linalg.inv(a)",
    "jit": "gc.compile(graph, fetches)",
    "kaiming_normal_": "HeNormal()",
    "kaiming_uniform_": "HeUniform()",
    "key": "gc.random.random_key(seed)",
    "learned_unigram_candidate_sampler": "gc.nn.log_uniform_candidate_sampler",
    "lgamma": "gc.gammaln(x)",
    "list_physical_devices": "gc.devices.available()",
    "local_devices": "gc.devices.available()",
    "log_sum_exp": "gc.logsumexp(x, axis)",
    "manual_seed": "gc.Graph(seed=...) or seed= of the function that draws",
    "mm": "gc.matmul(a, b)",
    "mul": "gc.multiply(a, b)",
    "no_grad": "gc.stop_gradient(x)",
    "permute": "gc.transpose(x, axes)",
    "piecewise_constant": "optax.piecewise_constant_schedule(...) as the rate",
    "rand": "gc.random.uniform(shape)",
    "randn": "gc.random.normal(shape)",
    "random_normal": "gc.random.normal(shape)",
    "random_uniform": "gc.random.uniform(shape)",
    "reduce_logsumexp": "gc.logsumexp(x, axis)",
    "reset_default_graph": "nothing: each gc.Graph() is new",
    "scatter_nd_update": "x.at[index].set(values)",
    "seed": "gc.Graph(seed=...) or seed= of the function that draws",
    "set_random_seed": "gc.Graph(seed=...)",
    "standard_normal": "gc.random.normal(shape)",
    "start_queue_runners": "gc.data.prefetch(batches, session)",
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
    "xavier_normal_": "GlorotNormal()",
    "xavier_uniform_": "GlorotUniform()",
}

# Arguments of other libraries -> the arguments that mean the same.
# What stands behind the dot of a session, a graph, a layer elsewhere -> what to write.
MEMBERS: Final[dict[str, dict[str, str]]] = {
    "Graph": {
        "as_default": "`with graph:`",
        "as_graph_def": "gc.save(session, path, signatures=...), which keeps the graph",
        "get_collection": "graph.collection(name)",
        "get_operation_by_name": "graph.node(name)",
        "get_operations": "graph.nodes",
        "get_tensor_by_name": "session.run(name); fetches and feeds may be names",
        "trainable_variables": "[v for v in graph.variables.values() if v.trainable]",
    },
    "Layer": {
        "add": "gc.nn.Sequential([layer, ...])",
        "add_weight": "layer.variable(name, initial, shape)",
        "apply": "layer(x)",
        "bias": 'layer.variables; session.get("<layer>/bias") gives numbers',
        "compile": "gc.minimize(loss, optax.adam(rate)), then session.run",
        "cpu": "session.run, which returns values",
        "cuda": 'with gc.device("/gpu:0"): around the call',
        "eval": "layer(x, training=False)",
        "evaluate": "session.run(metric, feeds)",
        "fit": "gc.train.fit(session, job), or a loop of session.run([train, loss], feeds)",
        "get_weights": "session.values()",
        "kernel": 'layer.variables; session.get("<layer>/kernel") gives numbers',
        "load_state_dict": "session.set_all(values)",
        "load_weights": "session.set_all(np.load(path))",
        "named_parameters": "{v.name: v for v in layer.variables}",
        "parameters": "layer.trainable_variables",
        "predict": "session.run(layer(x), feeds)",
        "requires_grad_": "gc.minimize(loss, optimizer, variables=...)",
        "save": "gc.save(session, path, signatures=...)",
        "save_weights": "np.savez(path, **session.values())",
        "set_weights": "session.set_all(values)",
        "state_dict": "session.values()",
        "to": "gc.device(name) around the call",
        "train": "layer(x, training=True)",
        "trainable_weights": "layer.trainable_variables",
        "weight": 'layer.variables; session.get("<layer>/kernel") gives numbers',
        "weights": "layer.variables",
        "zero_grad": "nothing: gradients are nodes, and do not accumulate",
    },
    "Session": {
        "as_default": "the session itself: session.run(...)",
        "eval": "session.run(tensor, feeds)",
        "fit": "gc.train.fit(session, job)",
        "graph_def": "session.graph",
        "load": "session.set_all(np.load(path))",
        "make_callable": "gc.compile(graph, fetches, feeds)",
        "partial_run": "session.run(fetches, feeds)",
        "predict": "session.run(prediction, feeds)",
        "restore": "session.set_all(np.load(path))",
        "save": "gc.save(session, path, signatures=...), or np.savez(path, **session.values())",
        "variables": "session.values(); session.graph.variables are the variables",
    },
}

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


def no_member(owner: object, kind: str, name: str) -> AttributeError:
    """The error for an attribute that an object of a class in `MEMBERS` does not have."""
    own = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{own!r} object has no attribute {name!r}", name=name, obj=owner)
    return UnknownAttributeError(
        f"{own} has no attribute {name!r}",
        source=current_source(),
        hint=_advice(name, MEMBERS[kind], dir(type(owner))),
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
