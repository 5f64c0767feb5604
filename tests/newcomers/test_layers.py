"""Layers and their options as newcomers write them."""

import jax
import numpy as np
import optax
import pytest

import graphc as gc
from graphc import nn
from graphc.errors import AttributeValueError, DTypeError, GraphError, ShapeError
from tests.newcomers.running import assert_near, run

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# -- initializers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("zeros", nn.initializers.Zeros()),
        ("ones", nn.initializers.Ones()),
        ("glorot_uniform", nn.initializers.GlorotUniform()),
        ("glorot_normal", nn.initializers.GlorotNormal()),
        ("xavier_uniform", nn.initializers.GlorotUniform()),
        ("he_uniform", nn.initializers.HeUniform()),
        ("he_normal", nn.initializers.HeNormal()),
        ("kaiming_normal", nn.initializers.HeNormal()),
        ("lecun_uniform", nn.initializers.LecunUniform()),
        ("lecun_normal", nn.initializers.LecunNormal()),
        ("orthogonal", nn.initializers.Orthogonal()),
        ("identity", nn.initializers.Identity()),
        ("truncated_normal", nn.initializers.TruncatedNormal()),
        ("random_normal", nn.initializers.Normal()),
        ("random_uniform", nn.initializers.Uniform()),
        ("GlorotUniform", nn.initializers.GlorotUniform()),
        (0.0, nn.initializers.Constant(0.0)),
        (np.float32(0.5), nn.initializers.Constant(0.5)),
    ],
)
def test_initializers_have_names(name, made):
    with gc.Graph():
        layer = nn.Dense(4, kernel_initializer=name)
        layer(gc.placeholder((None, 3)))
        assert layer.variables[0].initial == made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv2D(4, 2, kernel_initializer="he_normal", groups=2), (1, 5, 5, 2)),
        (lambda: nn.Conv2DTranspose(4, 2, bias_initializer="ones"), (1, 5, 5, 2)),
        (lambda: nn.DepthwiseConv2D(2, kernel_initializer="lecun_uniform"), (1, 5, 5, 2)),
        (lambda: nn.SeparableConv2D(3, 2, kernel_initializer="glorot_normal"), (1, 5, 5, 2)),
        (lambda: nn.Embedding(5, 2, "random_normal"), None),
        (lambda: nn.LSTM(3, recurrent_initializer="identity"), (1, 4, 3)),
        (lambda: nn.GRU(3, kernel_initializer="he_uniform"), (1, 4, 3)),
        (lambda: nn.SimpleRNN(3, recurrent_initializer="identity"), (1, 4, 3)),
        (lambda: nn.MultiHeadAttention(4, 2, kernel_initializer="he_uniform"), (1, 4, 4)),
    ],
)
def test_every_layer_takes_names_of_initializers(make, shape):
    x = np.array([1, 2]) if shape is None else normal(*shape)
    assert np.isfinite(run(lambda x: make()(x), x)).all()
    names = {"kernel_initializer", "bias_initializer", "initializer"}
    assert all(not isinstance(getattr(make(), name, None), str) for name in names)


def test_an_array_is_an_initial_value():
    kernel = normal(3, 2)
    x = normal(4, 3)
    assert_near(run(nn.Dense(2, kernel_initializer=kernel), x), x @ kernel)


def test_variables_take_names_of_initializers():
    with gc.Graph() as graph:
        v = gc.variable("he_normal", shape=(3, 2), name="v")
        assert v.initial == nn.initializers.HeNormal()
    assert gc.Session(graph).get("v").shape == (3, 2)
    with gc.Graph(), pytest.raises(AttributeValueError, match="unknown initializer 'hi_normal'"):
        gc.variable("hi_normal", shape=(3, 2))


@pytest.mark.parametrize(
    ("initializer", "match"),
    [
        ("glorot_unifrm", r"(?s)Dense: unknown initializer 'glorot_unifrm'.*glorot_uniform"),
        ("constant", r"(?s)unknown initializer 'constant'.*the number itself"),
        (nn.initializers.HeNormal, r"(?s)HeNormal is a class.*HeNormal\(\.\.\.\)"),
        (None, r"must be a function, a name, a number or an array, got None"),
    ],
)
def test_wrong_initializers_are_refused_where_the_layer_is_made(initializer, match):
    with pytest.raises(AttributeValueError, match=match):
        nn.Dense(4, kernel_initializer=initializer)


# -- regularizers ---------------------------------------------------------------------------


def test_penalties_are_those_of_the_formula():
    with gc.Graph() as graph:
        x = gc.placeholder((None, 6, 6, 2), name="x")
        conv = nn.Conv2D(
            3,
            2,
            kernel_regularizer=nn.L1(0.5),
            bias_initializer="ones",
            bias_regularizer=lambda b: gc.sum(b) * 7,
        )
        model = nn.Sequential(
            [conv, nn.Flatten(), nn.Dense(2, kernel_regularizer="l2"), nn.Dense(2)]
        )
        model(x)
        model(x)
        total = nn.penalty(model, name="total")
        again = nn.penalty([conv, model, conv])
        assert total.name == "total:0"
        kernels = [conv.variables[0], model.layers[2].variables[0]]
        assert len(model.regularized) == 3
    session = gc.Session(graph)
    a, b = (np.asarray(session.get(v.name)) for v in kernels)
    wanted = 0.5 * np.abs(a).sum() + 0.01 * np.square(b).sum() + 21
    got, twice = session.run([total, again])
    assert_near(got, wanted)
    assert_near(twice, wanted)


def test_penalties_of_separable_convolutions_embeddings_and_narrow_weights():
    with gc.Graph() as graph:
        separable = nn.SeparableConv2D(3, 2, kernel_regularizer="l2")
        separable(gc.zeros((1, 4, 4, 2)))
        rows = nn.Embedding(5, 2, "ones", regularizer=nn.L2(1.0), dtype="bfloat16")
        rows(gc.constant([1]))
        assert len(separable.regularized) == 2
        result = nn.penalty(rows)
        nothing = nn.penalty(_called(nn.Dense(2)))
    got, none = gc.Session(graph).run([result, nothing])
    assert got.dtype == np.float32 and got == 10 and none == 0


def _called(layer):
    layer(gc.zeros((1, 3)))
    return layer


def test_the_loss_has_a_penalty_only_where_it_is_written():
    with gc.Graph() as graph:
        layer = _called(nn.Dense(2, kernel_regularizer=nn.L2(0.5)))
        kernel = layer.variables[0]
        (gradient,) = gc.gradients(nn.penalty(layer), [kernel])
        (nothing,) = gc.gradients(gc.sum(layer(gc.zeros((1, 3)))), [kernel])
    session = gc.Session(graph)
    assert_near(session.run(gradient), session.get(kernel.name))
    assert not np.asarray(session.run(nothing)).any()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_recurrent_layers_take_regularizers(kind):
    with gc.Graph(seed=0) as graph:
        layer = kind(
            3,
            kernel_regularizer=nn.L2(1.0),
            recurrent_regularizer=nn.L1(2.0),
            bias_regularizer=lambda b: gc.sum(b) + 1.0,
        )
        layer(gc.ones((2, 4, 5)))
        total = nn.penalty(layer)
    session = gc.Session(graph)
    values = {name.rpartition("/")[2]: np.asarray(v) for name, v in session.values().items()}
    want = np.square(values.pop("kernel")).sum() + 2 * abs(values.pop("recurrent_kernel")).sum()
    want += sum(bias.sum() + 1.0 for bias in values.values())
    assert_near(session.run(total), want)
    assert len(layer.regularized) == 2 + len(values)


def test_wrong_regularizers():
    with pytest.raises(AttributeValueError, match=r"(?s)Dense: unknown regularizer 'l3'.*'l[12]'"):
        nn.Dense(4, kernel_regularizer="l3")
    with pytest.raises(AttributeValueError, match=r"unknown regularizer 0\.1"):
        nn.Conv2D(4, 2, kernel_regularizer=0.1)
    for rate in (-1, "x", float("nan"), True):
        with pytest.raises(AttributeValueError, match="L2: the rate must be a number of 0 or more"):
            nn.L2(rate)
    with gc.Graph():
        with pytest.raises(GraphError, match="has not been called"):
            nn.penalty(nn.Dense(3))
        with pytest.raises(AttributeValueError, match="takes layers, got 3"):
            nn.penalty([3])
        with pytest.raises(ShapeError, match="'dense/kernel' must give a scalar"):
            nn.penalty(_called(nn.Dense(4, kernel_regularizer=gc.square)))


# -- strides and windows for all axes -------------------------------------------------------


@pytest.mark.parametrize(
    ("tf", "own"),
    [
        (lambda x, w: nn.conv2d(x, w, strides=[1, 2, 1, 1], padding="SAME"),
         lambda x, w: nn.conv2d(x, w, strides=(2, 1), padding="same")),
        (lambda x, w: nn.conv2d(x, w, dilation=(1, 2, 2, 1),
                                padding=[[0, 0], [1, 0], [0, 2], [0, 0]]),
         lambda x, w: nn.conv2d(x, w, dilation=2, padding=((1, 0), (0, 2)))),
        (lambda x, w: nn.max_pool(x, [1, 2, 3, 1], [1, 2, 2, 1], "VALID"),
         lambda x, w: nn.max_pool(x, (2, 3), 2)),
        (lambda x, w: nn.avg_pool(x, (1, 2, 2, 1)), lambda x, w: nn.avg_pool(x, 2)),
        (lambda x, w: nn.MaxPool2D((1, 3, 3, 1), (1, 2, 2, 1))(x),
         lambda x, w: nn.MaxPool2D(3, 2)(x)),
        (lambda x, w: nn.Conv2D(3, 2, (1, 2, 2, 1), kernel_initializer=0.5)(x),
         lambda x, w: nn.Conv2D(3, 2, 2, kernel_initializer=0.5)(x)),
        (lambda x, w: nn.conv2d_transpose(x, gc.transpose(w, (0, 1, 3, 2)), strides=(1, 2, 2, 1)),
         lambda x, w: nn.conv2d_transpose(x, gc.transpose(w, (0, 1, 3, 2)), strides=2)),
    ],
)  # fmt: skip
def test_strides_and_windows_may_be_given_for_all_axes(tf, own):
    x, w = normal(2, 6, 7, 2), normal(2, 2, 2, 3)
    assert_near(run(tf, x, w), run(own, x, w))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: nn.max_pool(x, (1, 1, 2, 2)),
        lambda x: nn.max_pool(x, 2, (2, 2, 2, 1)),
        lambda x: nn.conv2d(x, gc.zeros((1, 1, 2, 3)), strides=(1, 1, 2, 2)),
        lambda x: nn.Conv2D(3, 2, strides=(1, 1, 2, 2)),
        lambda x: nn.AveragePool2D((1, 1, 2, 2)),
    ],
)
def test_batch_and_channels_have_no_strides(make):
    with pytest.raises(AttributeValueError, match=r"(?s)must be 1 along batch and channels.*last"):
        run(make, normal(2, 6, 7, 2))


# -- shapes ---------------------------------------------------------------------------------


def test_reshape():
    x = normal(2, 3, 4)
    assert_near(run(nn.Reshape((2, -1)), x), x.reshape(2, 2, 6))
    with gc.Graph():
        assert nn.Reshape((-1, 2))(gc.placeholder((None, 3, 4))).shape[1:] == (6, 2)
        with pytest.raises(AttributeValueError, match="the batch is not part"):
            nn.Reshape((-1, -1, 2))
        with pytest.raises(ShapeError):
            nn.Reshape((5,))(gc.placeholder((None, 3, 4)))


def test_upsampling():
    x = normal(2, 3, 4, 2)
    assert_near(run(nn.UpSampling2D((2, 3)), x), x.repeat(2, 1).repeat(3, 2))
    assert_near(run(nn.UpSampling1D(3), x[0]), x[0].repeat(3, 1))
    volume = normal(1, 2, 2, 2, 1)
    assert_near(run(nn.UpSampling3D(), volume), volume.repeat(2, 1).repeat(2, 2).repeat(2, 3))
    got = run(nn.UpSampling2D(2, "bilinear"), x)
    assert_near(got, jax.image.resize(x, (2, 6, 8, 2), "bilinear"))
    with pytest.raises(AttributeValueError, match="method must be"):
        nn.UpSampling2D(2, "best")
    with pytest.raises(AttributeValueError, match="size must be a positive int"):
        nn.UpSampling2D(0)
    with pytest.raises(ShapeError, match="rank 4"):
        run(nn.UpSampling2D(), volume)


@pytest.mark.parametrize(
    ("amount", "pairs"),
    [(1, ((1, 1), (1, 1))), ((1, 2), ((1, 1), (2, 2))), (((0, 1), (2, 0)), ((0, 1), (2, 0)))],
)
def test_padding_and_cropping(amount, pairs):
    x = normal(2, 6, 7, 2)
    padded = np.pad(x, ((0, 0), *pairs, (0, 0)))
    assert_near(run(nn.ZeroPadding2D(amount), x), padded)
    assert_near(run(nn.Cropping2D(amount), padded), x)


def test_padding_and_cropping_of_other_ranks():
    x, volume = normal(2, 5, 3), normal(1, 4, 4, 4, 1)
    assert_near(run(nn.ZeroPadding1D((1, 2)), x), np.pad(x, ((0, 0), (1, 2), (0, 0))))
    assert_near(run(nn.Cropping1D((1, 2)), x), x[:, 1:-2])
    assert_near(run(nn.Cropping3D(), volume), volume[:, 1:-1, 1:-1, 1:-1])
    padded = np.pad(volume, ((0, 0), *[(1, 1)] * 3, (0, 0)))
    assert_near(run(nn.ZeroPadding3D(), volume), padded)
    for wrong in (-1, (1,), "x", ((1, 2, 3), 1), 1.5):
        with pytest.raises(AttributeValueError, match="the amount must be"):
            nn.ZeroPadding2D(wrong)
    with pytest.raises(ShapeError, match="no elements are left of 5"):
        run(nn.Cropping1D((2, 3)), x)


def test_time_distributed():
    x = normal(2, 3, 6, 2)
    conv = nn.Conv1D(4, 2, kernel_initializer=0.5)

    def both(x):
        steps = gc.stack([conv(x[:, i]) for i in range(3)], axis=1)
        return nn.TimeDistributed(conv)(x), steps

    assert_near(*run(both, x))
    assert_near(run(nn.TimeDistributed(gc.nn.relu), x), x.clip(0))
    with gc.Graph():
        layer = nn.TimeDistributed(nn.Sequential([nn.Dense(4), nn.Dropout(0.5)]))
        y = layer(gc.placeholder((None, None, 3)), training=True)
        assert y.shape[-1] == 4 and y.ndim == 3 and len(layer.variables) == 2
        with pytest.raises(AttributeValueError, match="training must be"):
            layer(gc.zeros((1, 2, 3)))
        with pytest.raises(AttributeValueError, match="takes a layer or a function"):
            nn.TimeDistributed(nn.Dense)
        with pytest.raises(ShapeError, match="rank 2 or more"):
            layer(gc.zeros((3,)), training=True)


# -- noise ----------------------------------------------------------------------------------


def test_spatial_dropout():
    x = np.ones((40, 3, 2, 50), np.float32)
    with gc.Graph(seed=2) as graph:
        training = gc.placeholder((), "bool", name="training")
        layer = nn.SpatialDropout(0.25)
        fetches = [layer(x, True), layer(x, training), layer(x, False)]
        with pytest.raises(AttributeValueError, match="training must be"):
            layer(x)
        with pytest.raises(ShapeError, match="rank 3 or more"):
            layer(x[0, 0], True)
    for fed in (True, False):
        on, fed_on, off = map(np.asarray, gc.Session(graph).run(fetches, {"training": fed}))
        assert (off == 1).all()
        for dropped in [on, fed_on] if fed else [on]:
            assert (dropped == dropped[:, :1, :1]).all()
            assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
            assert abs((dropped[:, 0, 0] == 0).mean() - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
        assert fed or (fed_on == 1).all()
    with pytest.raises(AttributeValueError, match=r"rate must lie in \[0, 1\)"):
        nn.SpatialDropout(1.0)


def test_gaussian_noise():
    x = np.full((100, 100), 3, np.float32)
    with gc.Graph(seed=2) as graph:
        layer = nn.GaussianNoise(0.5)
        on, off = layer(x, True), layer(x, training=False)
        fed = layer(x, gc.placeholder((), "bool", name="training"))
        with pytest.raises(DTypeError, match="must be floating"):
            layer(np.arange(3), True)
    noisy, plain, switched = gc.Session(graph).run([on, off, fed], {"training": False})
    assert (plain == 3).all() and (switched == 3).all()
    assert abs(noisy.mean() - 3) < 5 * 0.5 / 100
    assert abs(noisy.std() - 0.5) < 5 * 0.5 / 100 / 2**0.5
    with pytest.raises(AttributeValueError, match="stddev must lie in"):
        nn.GaussianNoise(-1)


# -- spectral norm --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "shape"), [(lambda: nn.Dense(4), (5, 6)), (lambda: nn.Conv2D(3, 2), (2, 5, 5, 4))]
)
def test_spectral_norm_divides_by_the_largest_singular_value(make, shape):
    x = normal(*shape)
    with gc.Graph(seed=1) as graph:
        inner, plain = make(), make()
        layer = nn.SpectralNorm(inner, iterations=5)
        trained, served = layer(x, training=True), layer(x, training=False)
        wanted = plain(x)
        kernel, other = inner.variables[0], plain.variables[0]
        names = {v.name.rpartition("/")[2] for v in layer.variables}
        assert names == {"vector", "kernel", "bias"} and len(layer.trainable_variables) == 2
        updates = graph.collection("updates")
        assert len(updates) == 1
        (gradient,) = gc.gradients(gc.sum(gc.square(served)), [kernel])
    session = gc.Session(graph)
    before = np.asarray(session.get(kernel.name))
    for _ in range(30):
        session.run([trained, *updates])
    assert (np.asarray(session.get(kernel.name)) == before).all()
    matrix = before.reshape(-1, before.shape[-1])
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    session.set(other.name, before / values[0])
    # After 150 power iterations, the ratio of two singular values to this power remains.
    assert_near(session.run(served), session.run(wanted))
    vector = np.asarray(session.get(next(v.name for v in layer.variables if "vector" in v.name)))
    assert_near(abs(vector @ right[0]), 1)
    # A multiple of the kernel gives the same, so the gradient is orthogonal to the kernel.
    got = np.asarray(session.run(gradient))
    assert abs((got * before).sum()) < 1e-4 * np.linalg.norm(got) * np.linalg.norm(before)
    assert np.abs(got).max() > 1e-3


def test_spectral_norm_is_trained_and_switched():
    x = normal(8, 5)
    with gc.Graph(seed=1) as graph:
        training = gc.placeholder((), "bool", name="training")
        layer = nn.SpectralNorm(nn.Dense(3, name="dense"), name="norm")
        loss = gc.reduce_mean(gc.square(layer(x, training) - 1))
        step = gc.minimize(loss, optax.sgd(0.1))
    session = gc.Session(graph)
    start = session.values()
    session.run(step, {"training": False})
    assert (session.get("norm/vector") == start["norm/vector"]).all()
    losses = [float(session.run([loss, step], {"training": True})[0]) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert not (session.get("norm/vector") == start["norm/vector"]).all()


def test_the_vectors_of_spectral_norm_count_as_constants():
    x = normal(4, 5)
    with gc.Graph(seed=1) as graph:
        inner = nn.Dense(3, use_bias=False)
        layer = nn.SpectralNorm(inner, name="norm")
        loss = gc.sum(gc.square(layer(x, training=True)))
        slope = gc.gradients(loss, inner.variables[0])
    session = gc.Session(graph)
    values = session.values()
    kernel, vector = (values[v.name] for v in (inner.variables[0], graph.variables["norm/vector"]))

    def unit(v):
        return v / jax.numpy.linalg.norm(v)

    def wanted(w):
        right = jax.lax.stop_gradient(unit(unit(w @ unit(vector)) @ w))
        left = jax.lax.stop_gradient(unit(w @ right))
        return ((x @ (w / (left @ w @ right))) ** 2).sum()

    assert_near(session.run(slope), jax.grad(wanted)(kernel))


def test_wrong_uses_of_spectral_norm():
    with pytest.raises(AttributeValueError, match="takes a layer, got"):
        nn.SpectralNorm(gc.nn.relu)
    with gc.Graph():
        x = gc.zeros((2, 3))
        with pytest.raises(AttributeValueError, match="has no kernel of its own"):
            nn.SpectralNorm(nn.LayerNorm())(x, training=True)
        inner = nn.Dense(3)
        layer = nn.SpectralNorm(inner)
        with pytest.raises(AttributeValueError, match="training must be"):
            layer(x)
        with pytest.raises(GraphError, match="call the SpectralNorm"):
            inner(x)
        with pytest.raises(GraphError, match="has a wrapper already"):
            nn.SpectralNorm(nn.SpectralNorm(nn.Dense(3)).layer)
        with pytest.raises(GraphError, match="has been called"):
            nn.SpectralNorm(_called(nn.Dense(3)))


# -- additive attention ---------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_additive_attention():
    x, source = normal(2, 3, 4), normal(2, 5, 6)
    mask = np.arange(5) < np.array([3, 0])[:, None]
    with gc.Graph() as graph:
        layer = nn.AdditiveAttention(7)
        plain, masked = layer.with_weights(x, source), layer(x, source, mask[:, None, :])
        one = layer.with_weights(x[:, 1], source)
        weights = layer.variables
        assert layer.output_type is not None
    session = gc.Session(graph)
    w, u, b, v = (np.asarray(session.get(v.name)) for v in weights)
    scores = (np.tanh((x @ w)[:, :, None] + (source @ u + b)[:, None]) @ v)[..., 0]
    y, attended = session.run(list(plain))
    assert_near(attended, softmax(scores))
    assert_near(y, softmax(scores) @ source)
    limited = softmax(np.where(mask[:, None, :], scores, -1e9)) * mask[:, None, :]
    assert_near(session.run(masked), limited @ source)
    for got, want in zip(session.run(list(one)), (y, attended), strict=True):
        assert_near(got, want[:, 1])
    with gc.Graph():
        layer = nn.AdditiveAttention(7)
        with pytest.raises(ShapeError, match="the source must be"):
            layer(x, source[0])
        with pytest.raises(ShapeError, match=r"(?s)a bool of three axes.*mask\[:, None, :\]"):
            layer(x, source, mask)


# -- convolutional LSTM ---------------------------------------------------------------------


def conv(x, w, strides, padding):
    space = "DHW"[3 - (x.ndim - 2) :]
    form = (f"N{space}C", f"{space}IO", f"N{space}C")
    return np.asarray(
        jax.lax.conv_general_dilated(x, w, (strides,) * len(space), padding, dimension_numbers=form)
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("layer", "space"), [(nn.ConvLSTM1D, (6,)), (nn.ConvLSTM2D, (6, 5)), (nn.ConvLSTM3D, (4, 5, 4))]
)
@pytest.mark.parametrize(("strides", "padding"), [(1, "same"), (2, "valid")])
def test_conv_lstm(layer, space, strides, padding):
    x = normal(2, 3, *space, 2)
    lengths = np.array([3, 2])
    with gc.Graph() as graph:
        made = layer(4, 2, strides, padding)
        y, state = made.with_state(x)
        cut = made(x, lengths=lengths)
        second, _ = made.with_state(x[:, 1:], made.with_state(x[:, :1])[1])
        variables = made.variables
        cell_y, _ = made.cell(x[:, 0], made.cell.initial_state(2, space=y.shape[2:-1]))
    session = gc.Session(graph)
    w, bias, u = (np.asarray(session.get(v.name)) for v in variables)
    assert (bias[4:8] == 1).all() and bias.sum() == 4
    projected = conv(x[:, 0], w, strides, padding.upper())
    h = c = np.zeros((*projected.shape[:-1], 4), np.float32)
    outputs = []
    for t in range(3):
        gates = conv(x[:, t], w, strides, padding.upper()) + bias + conv(h, u, 1, "SAME")
        i, f, g, o = np.split(gates, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    wanted = np.stack(outputs, 1)
    got, last, shorter, later, first = session.run([y, state, cut, second, cell_y])
    assert_near(got, wanted)
    assert_near(last[0], h)
    assert_near(last[1], c)
    assert_near(first, wanted[:, 0])
    assert_near(later, wanted[:, 1:])
    wanted[1, 2] = 0
    assert_near(shorter, wanted)


def test_conv_lstm_in_both_directions_and_its_last_output():
    x = normal(2, 3, 5, 5, 2)
    with gc.Graph() as graph:
        both = nn.Bidirectional(nn.ConvLSTM2D(3, 3, padding="same"))(x)
        layer = nn.ConvLSTM2D(3, 3, return_sequences=False)
        last, (h, _) = layer.with_state(x)
        with pytest.raises(ShapeError, match=r"\[batch, time, height, width, features\] \(rank 5"):
            layer(x[0])
        with pytest.raises(AttributeValueError, match="needs the 2 spatial sizes"):
            layer.initial_state(2)
        with pytest.raises(ShapeError, match="the state must have the sizes of the outputs"):
            layer(x, layer.initial_state(2, space=(1, 1)))
        with pytest.raises(AttributeValueError, match="kernel_size must be"):
            nn.ConvLSTM2D(3, (3, 3, 3))
        with pytest.raises(AttributeValueError, match="filters must be"):
            nn.ConvLSTM2D(0, 3)
    assert both.shape == (2, 3, 5, 5, 6) and last.shape == (2, 3, 3, 3)
    got, state = gc.Session(graph).run([last, h])
    assert_near(got, state)


def test_layers_and_functions_pad_alike_by_default():
    x, w = normal(2, 6, 7, 2), normal(3, 3, 2, 3)
    layer = run(nn.Conv2D(3, 3, kernel_initializer=w), x)
    assert_near(layer, run(nn.conv2d, x, w))
    up = run(nn.Conv2DTranspose(2, 3, kernel_initializer=w), layer)
    assert_near(up, run(nn.conv2d_transpose, layer, w))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: nn.Dropout("a"), r"Dropout: rate must lie in \[0, 1\), got 'a'"),
        (lambda: nn.SpatialDropout(None), r"rate must lie in \[0, 1\), got None"),
        (lambda: nn.GaussianNoise(float("nan")), r"stddev must lie in \[0, inf\), got nan"),
        (lambda: nn.LayerNorm(epsilon="1"), r"epsilon must lie in \(0, 1\), got '1'"),
        (lambda: nn.penalty(3), "penalty: takes layers, got 3"),
        (lambda: nn.penalty([3]), "penalty: takes layers, got 3"),
    ],
)
def test_numbers_that_are_none(make, match):
    with gc.Graph(), pytest.raises(AttributeValueError, match=match) as caught:
        make()
    assert "test_layers.py" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: nn.Conv1D(2, 3), (6,)),
        (lambda: nn.Conv2D(2, 3), (6, 6)),
        (lambda: nn.Conv3D(2, 3), (6, 6, 6)),
        (lambda: nn.DepthwiseConv1D(3), (6,)),
        (lambda: nn.DepthwiseConv2D(3), (6, 6)),
        (lambda: nn.SeparableConv2D(2, 3), (6, 6)),
        (lambda: nn.Conv2DTranspose(2, 3), (10, 10)),
        (lambda: nn.MaxPool2D(3, strides=1), (6, 6)),
        (lambda: nn.AveragePool2D(3, strides=1), (6, 6)),
    ],
)
def test_nothing_is_padded_by_default(make, sizes):
    with gc.Graph():
        x = gc.placeholder((None, *(8,) * len(sizes), 4), name="x")
        assert make()(x).shape[1:-1] == sizes
