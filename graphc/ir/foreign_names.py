"""Names in TensorFlow, Keras, PyTorch and NumPy for things that have another name in graphc."""

from collections.abc import Mapping
from typing import Final, TypeVar

_T = TypeVar("_T")


def by_name(rows: Mapping[str, _T]) -> dict[str, _T]:
    """A table with an entry for each of the names that the keys of `rows` list."""
    return {name: value for names, value in rows.items() for name in names.split()}


# Attributes and methods of tensors in other libraries -> what to write.
_ATTRIBUTES: Final[dict[str, str]] = {
    "add": "x + y",
    "append": "gc.concatenate([x, more])",
    "assign": "v.assign(value) of a variable; a tensor never changes",
    "backward": "gc.gradients(loss, variables) or gc.minimize(loss, optimizer)",
    "bool": 'x.astype("bool")',
    "chunk": "gc.split(x, sections, axis)",
    "clamp": "x.clip(low, high)",
    "contiguous": "x: tensors have no memory order",
    "copy": "x: a tensor never changes",
    "cpu": "x: values move to the host when session.run returns them",
    "cuda": 'with gc.device("/gpu:0"): when the node is made',
    "detach": "gc.stop_gradient(x)",
    "dim": "x.ndim",
    "div": "x / y",
    "double": 'x.astype("float64")',
    "eq": "x == y",
    "eval numpy": "session.run(x)",
    "expand": "gc.broadcast_to(x, shape)",
    "fill": "gc.full_like(x, value)",
    "float": 'x.astype("float32")',
    "get_shape": "x.shape, a tuple of numbers: x.shape[0]",
    "grad": "gc.gradients(loss, variables)",
    "half": 'x.astype("float16")',
    "index_add scatter_add": "x.at[index].add(values)",
    "int": 'x.astype("int32")',
    "item": "session.run(x), which returns an array; its item() is a number",
    "long": 'x.astype("int64")',
    "masked_fill": "gc.where(mask, value, x)",
    "matmul": "x @ y",
    "mul": "x * y",
    "op": "x.node",
    "permute": "x.transpose(axes)",
    "pow": "x ** y",
    "requires_grad": "gc.variable(initial, trainable=True)",
    "set_shape": "gc.reshape(x, shape)",
    "softmax": "gc.softmax(x, axis)",
    "sub": "x - y",
    "t": "x.T",
    "to": "x.astype(dtype), or gc.device(name) when the node is made",
    "tolist": "session.run(x).tolist()",
    "topk": "gc.top_k(x, k)",
    "type_as": "x.astype(y.dtype)",
    "unsqueeze": "gc.expand_dims(x, axis)",
    "value": "session.run(x), which gives numbers; a variable is used as a tensor is",
    "view": "x.reshape(shape)",
    "zero_": "gc.zeros_like(x): a tensor never changes",
}
ATTRIBUTES: Final = by_name(_ATTRIBUTES)

# Attributes that other libraries let users set -> what to do.
_ASSIGNMENTS: Final[dict[str, str]] = {
    "T": "write gc.transpose(x)",
    "bias": 'write session.set("<layer>/bias", value), or bias_initializer= of the layer',
    "data value": "write session.set(v, value), or v.assign(value) in the graph",
    "dtype": "write x.astype(dtype)",
    "grad": "nothing is needed: gradients are nodes, and do not accumulate",
    "kernel": 'write session.set("<layer>/kernel", value), or kernel_initializer= of the layer',
    "name": "a name is given at the start, by name= of the function or layer; gc.identity(x, "
    'name="logits") gives a tensor another one',
    "ndim shape size": "write gc.reshape(x, shape)",
    "requires_grad": "write gc.minimize(loss, optimizer, variables=[...]), or gc.stop_gradient(x)",
    "trainable": "write gc.minimize(loss, optimizer, variables=[...]) without its variables",
    "training": "write layer(x, training=True)",
    "weight": 'write session.set("<layer>/kernel", value), or kernel_initializer= of the layer',
    "weights": "write session.set_all(values)",
}
ASSIGNMENTS: Final = by_name(_ASSIGNMENTS)

# Queues, readers and datasets of TensorFlow, in `gc.data` and elsewhere.
_READERS = (
    "FIFOQueue FixedLengthRecordDataset FixedLengthRecordReader PaddingFIFOQueue QueueRunner "
    "RandomShuffleQueue StagingArea TFRecordDataset TFRecordReader TextLineDataset TextLineReader "
    "WholeFileReader add_queue_runner batch_join bucket_by_sequence_length decode_csv decode_raw "
    "from_tensor_slices image_dataset_from_directory input_producer maybe_batch "
    "parse_single_example range_input_producer shuffle_batch shuffle_batch_join "
    "slice_input_producer string_input_producer"
)

_DTYPES = "bfloat16 bool float16 float32 float64 int32 int64 int8 uint8"

# Functions and classes of other libraries -> what to write.
_FUNCTIONS: Final[dict[str, str]] = {
    _READERS: "a pipeline of gc.data; docs/guide/data.md shows each form",
    "Activation": "gc.nn.relu(x): an activation is a function",
    "Adam": "optax.adam(rate)",
    "AdamW": "optax.adamw(rate)",
    "Add": "x + y",
    "BCELoss": "gc.nn.sigmoid_cross_entropy(labels=..., logits=...), of logits",
    "BCEWithLogitsLoss BinaryCrossentropy": "gc.nn.sigmoid_cross_entropy(labels=..., logits=...)",
    "BatchNorm1d BatchNormalization": "gc.nn.BatchNorm()",
    "CategoricalCrossentropy": "gc.nn.softmax_cross_entropy(labels=..., logits=...)",
    "Checkpoint CheckpointManager": "gc.train.Checkpointer(folder)",
    "Concatenate cat": "gc.concatenate(tensors, axis)",
    "Coordinator start_queue_runners": "gc.data.prefetch(batches, session)",
    "CrossEntropyLoss NLLLoss": "gc.nn.sparse_softmax_cross_entropy(labels=..., logits=...)",
    "DataLoader Dataset": "gc.data.Batches(arrays, batch), or any iterable of feeds",
    "EarlyStopping": 'gc.train.EarlyStopping("loss")',
    "ExponentialMovingAverage": "gc.train.moving_averages(variables, decay)",
    "GlobalAveragePooling2D": "gc.nn.GlobalAveragePool()",
    "GlobalMaxPooling2D": "gc.nn.GlobalMaxPool()",
    "GlorotNormalInitializer XavierNormal xavier_normal_": "gc.nn.initializers.GlorotNormal()",
    "GradientTape grad": "gc.gradients(loss, variables)",
    "Input Placeholder": "gc.placeholder(shape, dtype)",
    "InteractiveSession": "gc.Session(graph)",
    "KLDivLoss": "gc.nn.kl_divergence(labels=..., log_predictions=...)",
    "KaimingNormal kaiming_normal_": "gc.nn.initializers.HeNormal()",
    "KaimingUniform kaiming_uniform_": "gc.nn.initializers.HeUniform()",
    "L1Loss": "gc.reduce_mean(gc.abs(y - t))",
    "Lambda": "gc.nn.Sequential([f]): a function of a tensor is a layer",
    "LayerNormalization": "gc.nn.LayerNorm()",
    "Linear": "gc.nn.Dense(units)",
    "MSELoss MeanSquaredError": "gc.reduce_mean((y - t) ** 2)",
    "MirroredStrategy distribute": "gc.devices.DataParallel(n)",
    "Model Module": "gc.nn.Layer, or any function of tensors",
    "ModuleDict": "a dict: a layer finds the layers in dicts among its attributes",
    "ModuleList": "a list: a layer finds the layers in lists among its attributes",
    "MonitoredTrainingSession": "gc.train.fit(session, job)",
    "PRNGKey key": "gc.random.random_key(seed)",
    "Parameter": "gc.variable(initial)",
    "RMSprop": "optax.rmsprop(rate)",
    "RandomNormal": "gc.nn.initializers.Normal(stddev)",
    "RandomUniform": "gc.nn.initializers.Uniform(low, high)",
    "SGD": "optax.sgd(rate)",
    "Saver": "gc.train.Checkpointer(folder), or gc.save(session, path, signatures=...)",
    "SparseCategoricalCrossentropy": "gc.nn.sparse_softmax_cross_entropy(labels=..., logits=...)",
    "SpectralNormalization": "gc.nn.SpectralNorm(layer)",
    "TensorDataset batch": "gc.data.Batches(arrays, batch)",
    "Upsample": "gc.nn.UpSampling2D(size)",
    "VarianceScaling": "gc.nn.initializers.HeNormal(), or LecunNormal or GlorotNormal there",
    "Xavier XavierUniform xavier_uniform_": "gc.nn.initializers.GlorotUniform()",
    "ZeroPad2d": "gc.nn.ZeroPadding2D(amount)",
    "accuracy": "gc.metrics.Accuracy(labels=numbers, predictions=logits), or "
    'gc.reduce_mean(gc.cast(gc.equal(gc.argmax(logits, -1), numbers), "float32"))',
    "assign_add": "v.assign_add(value)",
    "assign_sub": "v.assign_sub(value)",
    "autograd": "gc.gradients(ys, xs)",
    "bernoulli": "gc.random.bernoulli(p, shape)",
    "contrib keras layers": "gc.nn.Dense(units) and the other layers of gc.nn",
    "cross_entropy": "gc.nn.sparse_softmax_cross_entropy(labels=..., logits=...)",
    "cuda list_physical_devices local_devices": "gc.devices.available()",
    "default_rng manual_seed seed": "gc.Graph(seed=...) or seed= of the function that draws",
    "device_count": "len(gc.devices.available())",
    "device_put": "gc.device(name)",
    "distributions": "gc.random.normal(shape) and the other draws of gc.random",
    "dynamic_rnn": "gc.nn.RNN(cell)",
    "empty": "gc.zeros(shape)",
    "exponential_decay": "optax.exponential_decay(rate, steps, factor) as the rate",
    "fixed_unigram_candidate_sampler": "gc.nn.UnigramSampler(classes, samples)",
    "foldl": "gc.scan(f, init, xs)",
    "foldr": "gc.scan(f, init, xs, reverse=True)",
    "functional": "gc.nn.relu(x) and the other functions of gc.nn",
    "get_default_graph": "`with graph:`; a tensor knows its graph as x.graph",
    "get_variable": "gc.variable(initial, name=...)",
    "global_variables_initializer": "nothing: a session begins with the initial values",
    "initialize_all_variables": "nothing: a session begins with the initial values",
    "initializers": "gc.nn.initializers",
    "inverse": "gc.linalg.inv(a)",
    "learned_unigram_candidate_sampler": "gc.nn.UnigramSampler(classes, samples)",
    "lgamma": "gc.gammaln(x)",
    "log_sum_exp reduce_logsumexp": "gc.logsumexp(x, axis)",
    "losses": "gc.nn.softmax_cross_entropy(labels=..., logits=...) and the other losses of gc.nn",
    "mm": "gc.matmul(a, b)",
    "mul": "gc.multiply(a, b)",
    "multinomial": "gc.random.categorical(logits)",
    "newaxis": "None, as in x[:, None]",
    "no_grad": "gc.stop_gradient(x)",
    "normalize": "gc.nn.l2_normalize(x, axis)",
    "optimizers": "gc.minimize(loss, optax.adam(rate)): the optimizers are those of optax",
    "permute": "gc.transpose(x, axes)",
    "piecewise_constant": "optax.piecewise_constant_schedule(rate, {steps: factor}) as the rate",
    "rand random_uniform": "gc.random.uniform(shape)",
    "randn random_normal standard_normal": "gc.random.normal(shape)",
    "random_shuffle": "gc.random.permutation(x)",
    "reset_default_graph": "nothing: each gc.Graph() is new",
    "scatter_nd_update": "x.at[index].set(values)",
    "shape": "x.shape",
    "sub": "gc.subtract(a, b)",
    "summary": "gc.train.SummaryWriter(folder)",
    "to_float": 'gc.cast(x, "float32")',
    "to_int32": 'gc.cast(x, "int32")',
    "topk": "gc.top_k(x, k)",
    "truncated_normal": "gc.random.truncated_normal(shape)",
    "unsqueeze": "gc.expand_dims(x, axis)",
    "variable_scope": "gc.name_scope(name)",
    "view": "gc.reshape(x, shape)",
    "while": "gc.while_loop(condition, body, initial)",
    "SpatialDropout1D SpatialDropout2D SpatialDropout3D": "gc.nn.SpatialDropout(rate)",
    "array as_tensor asarray convert_to_tensor from_numpy tensor": "gc.constant(value)",
    **{name: f'the name of the dtype, "{name}"' for name in _DTYPES.split()},
}
FUNCTIONS: Final = by_name(_FUNCTIONS)
