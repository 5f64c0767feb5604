"""Networks and training steps of flax, linen and nnx."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from tests.zoo.programs import labels, program, rows

# -- flax.linen ----------------------------------------------------------------------------------


def linen_parts(model, *args, **kwargs):
    return model.init(jax.random.key(0), *args, **kwargs)


@program("flax", wrt=())
def linen_resnet_step():
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            y = nn.Conv(4, (3, 3), use_bias=False)(x)
            y = nn.BatchNorm(use_running_average=not train)(y)
            return nn.relu(x + y)

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.Conv(4, (3, 3))(x)
            for _ in range(3):
                x = Block()(x, train)
            x = nn.avg_pool(x, (2, 2), (2, 2)).mean((1, 2))
            return nn.Dense(3)(nn.Dropout(0.2, deterministic=not train)(x))

    model, x, t = Net(), rows(4, 8, 8, 1), labels(4, 3)
    variables = model.init({"params": jax.random.key(0)}, x, train=False)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))

    def step(params, stats, state, key, x, t):
        def loss(params):
            logits, new = model.apply(
                {"params": params, "batch_stats": stats}, x, train=True,
                mutable=["batch_stats"], rngs={"dropout": key},
            )  # fmt: skip
            value = optax.softmax_cross_entropy(logits, jax.nn.one_hot(t, 3)).mean()
            return value, new["batch_stats"]

        (value, stats), slopes = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = tx.update(slopes, state, params)
        return optax.apply_updates(params, updates), stats, state, value

    params, stats = variables["params"], variables["batch_stats"]
    return step, (params, stats, tx.init(params), jax.random.key(3), x, t)


@program("flax")
def linen_scanned_and_rematerialised_transformer():
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(h, h)
            return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x)))), None

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            scanned = nn.scan(
                nn.remat(Block, prevent_cse=False), variable_axes={"params": 0},
                split_rngs={"params": True}, length=3,
            )  # fmt: skip
            return scanned()(x, None)[0]

    x = rows(2, 5, 8)
    model = Net()
    return lambda p, x: model.apply(p, x), (linen_parts(model, x), x)


@program("flax")
def linen_lstm_with_lifted_loop():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            layer = nn.RNN(nn.OptimizedLSTMCell(6), return_carry=True)
            carry, y = layer(x, seq_lengths=jnp.array([3, 5]))
            return nn.Bidirectional(nn.RNN(nn.GRUCell(4)), nn.RNN(nn.GRUCell(4)))(y), carry

    x = rows(2, 5, 3)
    model = Net()
    return lambda p, x: model.apply(p, x), (linen_parts(model, x), x)


@program("flax")
def linen_vae_with_weight_norm():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            h = nn.tanh(nn.WeightNorm(nn.Dense(6))(x))
            mean, spread = jnp.split(nn.Dense(4)(h), 2, -1)
            z = mean + jnp.exp(spread) * jax.random.normal(self.make_rng("z"), mean.shape)
            return nn.Dense(3)(z), mean, spread

    x, model = rows(4, 3), Net()
    params = model.init({"params": jax.random.key(0), "z": jax.random.key(1)}, x)
    return lambda p, x, k: model.apply(p, x, rngs={"z": k}), (params, x, jax.random.key(2))


@program("flax")
def linen_embedding_and_autoregressive_decoding():
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens, decode):
            embed = nn.Embed(11, 8)
            h = embed(tokens)
            attention = nn.SelfAttention(num_heads=2, decode=decode)
            return embed.attend(h + attention(h, mask=None))

    model, tokens = Net(), labels(6, 11).reshape(1, 6)
    variables = model.init(jax.random.key(0), tokens, decode=True)

    def decoded(params, tokens):
        def step(cache, token):
            variables = {"params": params, "cache": cache}
            logits, new = model.apply(variables, token[None, None], decode=True, mutable=["cache"])
            return new["cache"], logits[0, 0]

        return jax.lax.scan(step, variables["cache"], tokens[0])

    return decoded, (variables["params"], tokens)


# -- flax.nnx ------------------------------------------------------------------------------------


@program("flax", wrt=())
def nnx_step_with_optimizer_and_dropout():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 8, rngs=rngs)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.drop = nnx.Dropout(0.2, rngs=rngs)
            self.last = nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, x):
            return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))

    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
    definition, state = nnx.split((model, optimizer))

    def step(state, x, t):
        model, optimizer = nnx.merge(definition, state)

        def loss(model):
            return jnp.mean((model(x) - t) ** 2)

        value, slopes = nnx.value_and_grad(loss)(model)
        optimizer.update(model, slopes)
        return nnx.state((model, optimizer)), value

    return step, (state, rows(4, 3), rows(4, 1))


@program("flax")
def nnx_conv_with_spectral_attention():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(2, 8, (3,), rngs=rngs)
            self.norm = nnx.RMSNorm(8, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
            self.lora = nnx.LoRA(8, 2, 4, rngs=rngs)

        def __call__(self, x):
            return self.lora(self.attention(self.norm(self.conv(x))))

    definition, state = nnx.split(Net(nnx.Rngs(0)))
    return lambda s, x: nnx.merge(definition, s)(x), (state, rows(2, 5, 2))


@program("flax")
def nnx_scanned_layers():
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(4, 4, rngs=rngs)

        def __call__(self, x):
            return x + nnx.tanh(self.linear(x))

    @nnx.vmap(in_axes=0, out_axes=0)
    def blocks(key):
        return Block(nnx.Rngs(key))

    definition, state = nnx.split(blocks(jax.random.split(jax.random.key(0), 3)))

    def fn(state, x):
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        @nnx.remat
        def forward(block, x):
            return block(x)

        return forward(nnx.merge(definition, state), x)

    return fn, (state, rows(2, 4))
