"""Networks and training steps of equinox and haiku."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from tests.zoo.programs import labels, program, rows


def train(loss, tx, params, steps=2):
    """Makes `steps` training steps with `loss(params, key, *batch)`."""

    def run(params, key, *batch):
        state = tx.init(params)

        def step(carry, key):
            params, state = carry
            value, slopes = jax.value_and_grad(loss)(params, key, *batch)
            updates, state = tx.update(slopes, state, params)
            return (optax.apply_updates(params, updates), state), value

        (params, _), values = jax.lax.scan(step, (params, state), jax.random.split(key, steps))
        return params, values

    return run


# -- equinox -------------------------------------------------------------------------------------


@program("equinox")
def equinox_mlp():
    import equinox as eqx

    model = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0))
    params, rest = eqx.partition(model, eqx.is_array)
    return lambda p, x: jax.vmap(eqx.combine(p, rest))(x), (params, rows(4, 3))


@program("equinox", wrt=())
def equinox_cnn_trained_with_dropout():
    import equinox as eqx

    class Net(eqx.Module):
        conv: eqx.nn.Conv2d
        norm: eqx.nn.GroupNorm
        pool: eqx.nn.MaxPool2d
        drop: eqx.nn.Dropout
        head: eqx.nn.Linear

        def __call__(self, x, key):
            h = self.pool(jax.nn.relu(self.norm(self.conv(x))))
            return self.head(self.drop(h.reshape(-1), key=key))

    keys = jax.random.split(jax.random.key(0))
    net = Net(
        eqx.nn.Conv2d(1, 4, 3, key=keys[0]), eqx.nn.GroupNorm(2, 4), eqx.nn.MaxPool2d(2, 2),
        eqx.nn.Dropout(0.3), eqx.nn.Linear(36, 3, key=keys[1]),
    )  # fmt: skip
    params, rest = eqx.partition(net, eqx.is_inexact_array)

    def loss(params, key, x, t):
        net = eqx.combine(params, rest)
        logits = jax.vmap(net)(x, jax.random.split(key, x.shape[0]))
        return optax.softmax_cross_entropy_with_integer_labels(logits, t).mean()

    fn = train(loss, optax.adam(1e-2), params)
    return fn, (params, jax.random.key(1), rows(4, 1, 8, 8), labels(4, 3))


@program("equinox")
def equinox_batch_norm():
    import equinox as eqx

    layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, axis_name="batch", mode="ema")

    def normalise(x):
        mapped = jax.vmap(layer, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        y, after = mapped(x, state)
        return y, jax.tree.leaves(after)

    return normalise, (rows(4, 3),)


@program("equinox")
def equinox_gru_over_time():
    import equinox as eqx

    cell = eqx.nn.GRUCell(3, 5, key=jax.random.key(0))
    params, rest = eqx.partition(cell, eqx.is_array)

    def fn(params, xs):
        cell = eqx.combine(params, rest)
        return jax.lax.scan(lambda h, x: ((h := cell(x, h)), h), jnp.zeros(5), xs)[1]

    return fn, (params, rows(6, 3))


@program("equinox")
def equinox_attention_with_checkpoint():
    import equinox as eqx

    attention = eqx.nn.MultiheadAttention(2, 8, dropout_p=0.1, key=jax.random.key(0))
    params, rest = eqx.partition(attention, eqx.is_array)

    @eqx.filter_checkpoint
    def block(params, x, key):
        return x + eqx.combine(params, rest)(x, x, x, key=key)

    def fn(params, x, key):
        for each in jax.random.split(key, 2):
            x = block(params, x, each)
        return x

    return fn, (params, rows(5, 8), jax.random.key(2))


@program("equinox")
def equinox_loops_and_errors():
    import equinox as eqx
    from equinox.internal import while_loop

    @eqx.filter_jit
    def fn(x):
        x = eqx.error_if(x, jnp.any(jnp.isnan(x)), "nan")
        out = while_loop(
            lambda c: c[1] < 5, lambda c: (jnp.sin(c[0]) + c[0], c[1] + 1), (x, 0),
            max_steps=8, kind="checkpointed",
        )  # fmt: skip
        return out[0]

    return fn, (rows(3),)


@program("equinox", saved=False)
def equinox_errors_that_are_raised():
    import equinox as eqx

    def fn(x):
        x = eqx.error_if(x, jnp.any(x > 100), "too large", on_error="raise")
        return eqx.branched_error_if(x * 2, x[0] > 100, jnp.int32(1), ["a", "b"], on_error="raise")

    return fn, (rows(3),)


@program("equinox")
def equinox_spectral_and_closure_convert():
    import equinox as eqx

    weight = rows(3, 3)

    def fn(x):
        inner = eqx.filter_closure_convert(lambda y: weight @ y * x.sum(), x)
        slope = eqx.filter_jacfwd(inner)(x)
        return slope, eqx.filter_vmap(lambda a: a * 2, in_axes=0)(slope)

    return fn, (rows(3),)


# -- haiku ---------------------------------------------------------------------------------------


@program("haiku")
def haiku_lstm():
    import haiku as hk

    def net(x):
        core = hk.DeepRNN([hk.LSTM(5), jax.nn.relu, hk.GRU(4)])
        y, _ = hk.dynamic_unroll(core, x, core.initial_state(2))
        return hk.BatchApply(hk.Linear(3))(y)

    made, x = hk.without_apply_rng(hk.transform(net)), rows(5, 2, 3)
    return lambda p, x: made.apply(p, x), (made.init(jax.random.key(0), x), x)


@program("haiku", wrt=())
def haiku_mobilenet_step():
    import haiku as hk

    def net(x, training):
        h = hk.DepthwiseConv2D(2, 3)(x)
        h = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(h, training))
        h = hk.Conv2DTranspose(3, 2, stride=2)(h)
        h = hk.avg_pool(h, 2, 2, "SAME")
        h = hk.dropout(hk.next_rng_key(), 0.2, h) if training else h
        return hk.Linear(3, w_init=hk.initializers.Orthogonal())(jnp.mean(h, (1, 2)))

    made, x, t = hk.transform_with_state(net), rows(2, 8, 8, 2), labels(2, 3)
    params, stats = made.init(jax.random.key(0), x, True)
    tx = optax.lamb(1e-2)

    def step(params, stats, state, key, x, t):
        def loss(params):
            logits, new = made.apply(params, stats, key, x, True)
            return optax.softmax_cross_entropy_with_integer_labels(logits, t).mean(), new

        (value, stats), slopes = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = tx.update(slopes, state, params)
        return optax.apply_updates(params, updates), stats, state, value

    return step, (params, stats, tx.init(params), jax.random.key(1), x, t)


@program("haiku")
def haiku_remat_and_cond():
    import haiku as hk

    def net(x):
        layers = hk.nets.MLP([8, 4], name="body")
        h = hk.remat(layers)(x)
        last = hk.Linear(4, name="last")
        h = hk.cond(jnp.sum(x) > 0, lambda h: last(h), lambda h: last(h * 2), h)
        return hk.fori_loop(0, 3, lambda i, h: h + jnp.sin(h) * i, h)

    made, x = hk.without_apply_rng(hk.transform(net)), rows(3, 5)
    return lambda p, x: made.apply(p, x), (made.init(jax.random.key(0), x), x)


@program("haiku")
def haiku_attention_with_layer_stack():
    import haiku as hk

    def net(x):
        def block(x):
            h = hk.LayerNorm(-1, True, True)(x)
            h = hk.MultiHeadAttention(2, 4, w_init_scale=1.0, model_size=8)(h, h, h)
            return x + h

        return hk.experimental.layer_stack(3)(block)(x)

    made, x = hk.without_apply_rng(hk.transform(net)), rows(2, 4, 8)
    return lambda p, x: made.apply(p, x), (made.init(jax.random.key(0), x), x)
