"""Makes `models.zip`: small whole models in TensorFlow's formats, with TensorFlow's results.

Needs TensorFlow and Keras: `python tests/importers/tensorflow/make_models.py`. MetaGraphs of
TensorFlow 1 include the variables after ten of its own training steps; SavedModels of Keras include
their outputs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
RNG = np.random.default_rng(0)
STEPS = 10


def variable(name: str, *shape: int, scale: float = 0.4) -> Any:
    value = RNG.normal(0, scale, shape)
    return v1.get_variable(name, initializer=tf.constant(value), use_resource=False)


def lstm(x: Any, y: Any) -> tuple[Any, Any]:
    """A recurrent network in the form of `tf.nn.dynamic_rnn`: a frame and TensorArrays."""
    units = 6
    kernel, bias = variable("rnn/kernel", 3 + units, 4 * units), variable("rnn/bias", 4 * units)
    rows = tf.transpose(x, [1, 0, 2])
    steps, batch = tf.shape(rows)[0], tf.shape(rows)[1]
    source = tf.TensorArray(tf.float64, steps).unstack(rows)
    out = tf.TensorArray(tf.float64, steps)
    zero = tf.zeros(tf.stack([batch, units]), tf.float64)

    def body(time: Any, c: Any, h: Any, out: Any) -> Any:
        gates = tf.matmul(tf.concat([source.read(time), h], 1), kernel) + bias
        i, j, f, o = tf.split(gates, 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return time + 1, c, h, out.write(time, h)

    *_, out = v1.while_loop(lambda time, *_: time < steps, body, [0, zero, zero, out])
    stacked = tf.transpose(out.stack(), [1, 0, 2])
    logits = tf.tensordot(tf.reduce_mean(stacked, 1), variable("out/kernel", units, 2), 1)
    logits = tf.nn.bias_add(logits, variable("out/bias", 2), name="logits")
    return logits, tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    )


def resnet(x: Any, y: Any) -> tuple[Any, Any]:
    """Residual blocks with batch normalization and its moving averages, in a `tf.cond`."""
    training = v1.placeholder_with_default(True, [], name="training")
    h = tf.nn.conv2d(x, variable("stem/kernel", 3, 3, 2, 4), 1, "SAME")
    for i in range(2):
        with v1.variable_scope(f"block{i}"):
            r = tf.nn.conv2d(h, variable("kernel", 3, 3, 4, 4), 1, "SAME")
            scale, offset = variable("gamma", 4), variable("beta", 4)
            mean = v1.get_variable("mean", initializer=np.zeros(4), trainable=False,
                                   use_resource=False)  # fmt: skip
            var = v1.get_variable("variance", initializer=np.ones(4), trainable=False,
                                  use_resource=False)  # fmt: skip
            own = tf.nn.moments(r, [0, 1, 2])
            used = v1.cond(training, lambda own=own: own,
                           lambda m=mean, v=var: (tf.identity(m), tf.identity(v)))  # fmt: skip
            for moving, now in zip((mean, var), used, strict=True):
                update = v1.assign(moving, moving * 0.9 + now * 0.1)
                v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update)
            r = tf.nn.batch_normalization(r, *used, offset, scale, 1e-3)
            h = tf.nn.relu(h + r)
    h = tf.nn.max_pool2d(h, 2, 2, "VALID")
    logits = tf.matmul(tf.reduce_mean(h, [1, 2]), variable("out/kernel", 4, 2), name="logits")
    one_hot = tf.one_hot(y, 2, dtype=tf.float64)
    return logits, tf.reduce_mean(
        tf.nn.softmax_cross_entropy_with_logits(labels=one_hot, logits=logits)
    )


def meta_graph(folder: Path, build: Callable[..., Any], *shape: int) -> None:
    v1.disable_control_flow_v2()
    x = RNG.normal(size=(STEPS, 4, *shape))
    y = RNG.integers(0, 2, (STEPS, 4)).astype(np.int32)
    graph = tf.Graph()
    with graph.as_default(), v1.Session() as session:
        features = v1.placeholder(tf.float64, [None, *shape], name="x")
        labels = v1.placeholder(tf.int32, [None], name="y")
        logits, loss = build(features, labels)
        tf.identity(loss, name="loss")
        saver = v1.train.Saver()
        session.run(v1.global_variables_initializer())
        folder.mkdir()
        saver.save(session, str(folder / "model.ckpt"), write_state=False)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train = v1.train.MomentumOptimizer(0.125, 0.75).minimize(loss)
        session.run(v1.variables_initializer(
            [v for v in v1.global_variables() if "Momentum" in v.name]))  # fmt: skip
        first = session.run(logits, {features: x[0]})
        losses = [
            session.run([train, loss], {features: a, labels: b})[1]
            for a, b in zip(x, y, strict=True)
        ]
        after = {
            v.op.name: session.run(v) for v in v1.global_variables() if "Momentum" not in v.name
        }
    arrays = {f"after_{name.replace('/', '__')}": value for name, value in after.items()}
    np.savez(folder / "results.npz", x=x, y=y, first=first, losses=losses, **arrays)


def partitioned(folder: Path) -> None:
    """A checkpoint with a variable in three parts, and other dtypes; and a version 1 checkpoint,
    which has no bfloat16."""
    with tf.Graph().as_default(), v1.Session() as session:
        parts = v1.fixed_size_partitioner(3)
        table = np.arange(70, dtype=np.float32).reshape(7, 10)

        def start(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            first = partition_info.var_offset[0]
            return tf.constant(table[first : first + shape[0]])

        v1.get_variable("table", [7, 10], initializer=start, partitioner=parts)
        v1.get_variable("half", initializer=tf.constant([1.5, -2.0], tf.bfloat16))
        v1.get_variable("words", initializer=tf.constant(["a", "long " * 50, ""]))
        v1.get_variable("step", initializer=tf.constant(7, tf.int64))
        session.run(v1.global_variables_initializer())
        folder.mkdir()
        v1.train.Saver().save(session, str(folder / "model"), write_meta_graph=False)
        old = [each for each in v1.global_variables() if each.op.name != "half"]
        v1.train.Saver(old, write_version=v1.train.SaverDef.V1).save(
            session, str(folder / "single"), write_meta_graph=False, write_state=False
        )


L = keras.layers


def transformer() -> tuple[Any, Any]:
    i = L.Input((7,), dtype="int32")
    e = L.Embedding(20, 16)(i)
    h = L.LayerNormalization()(e + L.MultiHeadAttention(4, 4)(e, e, use_causal_mask=True))
    h = L.LayerNormalization()(h + L.Dense(16)(L.Dense(32, activation="gelu")(h)))
    return keras.Model(i, L.Dense(20)(h)), RNG.integers(0, 20, (2, 7)).astype(np.int32)


def recurrent() -> tuple[Any, Any]:
    i = L.Input((5, 4))
    h = L.Bidirectional(L.LSTM(4, return_sequences=True))(L.Masking()(i))
    return keras.Model(i, L.Dense(3)(L.GRU(6)(h))), RNG.normal(size=(2, 5, 4)).astype(np.float32)


def seq2seq() -> tuple[Any, Any]:
    i = L.Input((6, 4))
    _, h, c = L.LSTM(5, return_state=True)(i)
    out = L.LSTM(5, return_sequences=True)(L.RepeatVector(3)(h), initial_state=[h, c])
    out = L.Attention()([out, L.Dense(5)(i)])
    return keras.Model(i, L.TimeDistributed(L.Dense(8, activation="softmax"))(out)), RNG.normal(
        size=(2, 6, 4)
    ).astype(np.float32)


def images() -> tuple[Any, Any]:
    """Blocks of DenseNet and MobileNet."""
    i = L.Input((16, 16, 3))
    h = L.Conv2D(6, 3, strides=2, padding="same")(L.Rescaling(1 / 127.5, -1)(i))
    for _ in range(2):
        r = L.Conv2D(4, 3, padding="same")(L.ReLU()(L.BatchNormalization()(h)))
        h = L.Concatenate()([h, r])
    h = L.AveragePooling2D(2)(h)
    r = L.DepthwiseConv2D(3, padding="same")(L.ZeroPadding2D(1)(h))
    h = L.GlobalAveragePooling2D()(L.ReLU(6.0)(L.Cropping2D(1)(r)))
    return keras.Model(i, L.Dense(5, activation="softmax")(L.Dropout(0.2)(h))), RNG.uniform(
        0, 255, (2, 16, 16, 3)
    ).astype(np.float32)


def saved_model(folder: Path, build: Callable[[], tuple[Any, Any]]) -> None:
    v1.enable_control_flow_v2()
    model, x = build()
    model.export(str(folder), verbose=False)
    function = tf.saved_model.load(str(folder)).signatures["serving_default"]
    (key,) = function.structured_input_signature[1]
    (y,) = function(**{key: tf.constant(x)}).values()
    np.savez(folder / "results.npz", x=x, y=y.numpy())
    (folder / "fingerprint.pb").unlink(missing_ok=True)


WORDS = ["the", "cat", "sat", "mat", "é"]
LABELS = ["good", "bad", "ugly"]
SENTENCES = [["the", "cat", "sat"], ["", "mat", "é"], ["dog", "the", ""], ["sat", "dog", "dog"]]


class Words(tf.Module):
    """A classifier of words: tables from a text file, with a bucket for other words, and from
    constants; labels from a table and from `tf.gather`."""

    def __init__(self, file: str) -> None:
        lines = tf.lookup.TextFileInitializer(
            file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
        )  # fmt: skip
        self.ids = tf.lookup.StaticVocabularyTable(lines, 1)
        weights = tf.lookup.KeyValueTensorInitializer(["cat", "zoo", "the"], [2.5, 1.0, 0.25])
        self.weights = tf.lookup.StaticHashTable(weights, 1.0)
        labels = tf.lookup.KeyValueTensorInitializer(tf.range(3, dtype=tf.int64), LABELS)
        self.labels = tf.lookup.StaticHashTable(labels, "none")
        self.embedding = tf.Variable(RNG.normal(size=(len(WORDS) + 1, 4)).astype("f"))
        self.kernel = tf.Variable(RNG.normal(size=(4, 3)).astype("f"))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.string, name="words")])
    def __call__(self, words: Any) -> dict[str, Any]:
        used = tf.cast(tf.not_equal(words, ""), tf.float32) * self.weights.lookup(words)
        rows = tf.gather(self.embedding, self.ids.lookup(words))
        scores = tf.nn.softmax(tf.reduce_sum(rows * used[:, :, None], 1) @ self.kernel)
        order = tf.argsort(scores, direction="DESCENDING", stable=True)
        return {
            "scores": scores,
            "label": self.labels.lookup(tf.argmax(scores, 1)),
            "third": self.labels.lookup(tf.argmax(scores, 1) * 2),  # 4 has no label
            "classes": tf.gather(tf.constant(LABELS), order),
        }


def words(folder: Path) -> None:
    folder.mkdir()
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside, "words.txt")
        file.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
        module = Words(str(file))
        tf.saved_model.save(module, str(folder), signatures=module.__call__)
        found = tf.saved_model.load(str(folder)).signatures["serving_default"](
            words=tf.constant(SENTENCES)
        )
    arrays = {name: value.numpy() for name, value in found.items()}
    arrays = {k: v.astype("S") if v.dtype == object else v for k, v in arrays.items()}
    np.savez(folder / "results.npz", x=np.char.encode(SENTENCES, "utf-8"), **arrays)


def string_lookup(folder: Path) -> None:
    """Keras' layer for words, with a mask."""
    x = keras.Input((3,), dtype="string", name="words")
    ids = keras.layers.StringLookup(vocabulary=WORDS, mask_token="")(x)
    h = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(8, 4)(ids))
    model = keras.Model(x, keras.layers.Dense(3)(h))
    model.export(str(folder), verbose=False)
    y = model(tf.constant(SENTENCES)).numpy()
    np.savez(folder / "results.npz", x=np.char.encode(SENTENCES, "utf-8"), y=y)


def pack(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(path.relative_to(folder).as_posix())
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, path.read_bytes())
    print(target.name, target.stat().st_size, "bytes")


def old_models() -> None:
    """Makes the old models in a separate process: TensorFlow 1 does not mix with Keras."""
    v1.disable_eager_execution()
    root = Path(sys.argv[1])
    meta_graph(root / "lstm", lstm, 5, 3)
    meta_graph(root / "resnet", resnet, 6, 6, 2)
    partitioned(root / "partitioned")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        old_models()
    else:
        import subprocess

        keras.utils.set_random_seed(0)
        root = Path(tempfile.mkdtemp())
        subprocess.run([sys.executable, __file__, str(root)], check=True)
        for build in (transformer, recurrent, seq2seq, images):
            saved_model(root / build.__name__, build)
        words(root / "words")
        string_lookup(root / "string_lookup")
        pack(root, Path(__file__).with_name("models.zip"))
        shutil.rmtree(root)
