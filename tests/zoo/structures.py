"""Graph and equivariant networks, optimizers, unusual uses of JAX: jraph, e3nn, optax, jax."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.zoo.programs import program, rows

# -- jraph ---------------------------------------------------------------------------------------


def small_graph():
    import jraph

    return jraph.GraphsTuple(
        n_node=np.array([3, 2], "int32"), n_edge=np.array([4, 2], "int32"),
        nodes=rows(5, 4), edges=rows(6, 3, seed=1), globals=rows(2, 2, seed=2),
        senders=np.array([0, 1, 2, 0, 3, 4], "int32"),
        receivers=np.array([1, 2, 0, 2, 4, 3], "int32"),
    )  # fmt: skip


@program("jraph", wrt=(0, 1))
def jraph_network():
    import jraph

    params = {"e": rows(13, 5, seed=3), "n": rows(16, 4, seed=4), "g": rows(11, 2, seed=5)}

    def fn(params, graph):
        def edges(e, s, r, g):
            return jnp.tanh(jnp.concatenate([e, s, r, g], -1) @ params["e"])

        def nodes(n, s, r, g):
            return jnp.tanh(jnp.concatenate([n, s, r, g], -1) @ params["n"])

        def whole(n, e, g):
            return jnp.concatenate([n, e, g], -1) @ params["g"]

        out = jraph.GraphNetwork(edges, nodes, whole)(graph)
        return out.nodes, out.edges, out.globals

    return fn, (params, small_graph())


@program("jraph", wrt=(0, 1))
def jraph_attention_and_convolution():
    import jraph

    params = {"q": rows(4, 4, seed=3), "a": rows(8, seed=4), "w": rows(4, 4, seed=5)}

    def fn(params, graph):
        graph = graph._replace(edges=None, globals=None)

        def logits(s, r, e):
            return jax.nn.leaky_relu(jnp.concatenate([s, r], -1) @ params["a"][:, None])

        attended = jraph.GAT(lambda n: n @ params["q"], logits)(graph)
        convolved = jraph.GraphConvolution(
            lambda n: n @ params["w"], add_self_edges=True, symmetric_normalization=True
        )(attended)
        return attended.nodes, convolved.nodes

    return fn, (params, small_graph())


@program("jraph", wrt=())
def jraph_padded_training_step():
    import jraph

    padded = jraph.pad_with_graphs(small_graph(), 8, 10, 4)
    params, tx = {"w": rows(4, 1, seed=3)}, optax.yogi(1e-2)

    def step(params, state, graph):
        def loss(params):
            net = jraph.InteractionNetwork(
                lambda e, s, r: e.sum(-1, keepdims=True) * s + r,
                lambda n, r: (n + r) @ params["w"],
            )
            out = net(graph._replace(globals=None))
            mask = jraph.get_node_padding_mask(graph)
            return jnp.sum(jnp.where(mask, out.nodes[:, 0] ** 2, 0.0)) / mask.sum()

        value, slopes = jax.value_and_grad(loss)(params)
        updates, state = tx.update(slopes, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, tx.init(params), padded)


# -- e3nn ----------------------------------------------------------------------------------------


@program("e3nn_jax")
def e3nn_spherical_harmonics():
    import e3nn_jax as e3nn

    def fn(x):
        y = e3nn.spherical_harmonics("0e + 1o + 2e", x, normalize=True)
        return e3nn.norm(y).array, y.array

    return fn, (rows(4, 3),)


@program("e3nn_jax", wrt=(0, 1))
def e3nn_tensor_product():
    import e3nn_jax as e3nn

    def fn(x, y):
        a = e3nn.IrrepsArray("2x0e + 1o", x)
        b = e3nn.IrrepsArray("0e + 1o", y)
        product = e3nn.tensor_product(a, b, filter_ir_out=["0e", "1o", "1e"])
        gated = e3nn.gate(e3nn.concatenate([product.filter("0e"), product.filter("1o")]))
        return product.array, gated.array

    return fn, (rows(4, 5), rows(4, 4, seed=1))


@program("e3nn_jax", wrt=(0,))
def e3nn_message_passing():
    import e3nn_jax as e3nn
    from flax import linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, features, positions, senders, receivers):
            gaps = positions[receivers] - positions[senders]
            sh = e3nn.spherical_harmonics("0e + 1o", gaps, True)
            messages = e3nn.tensor_product(features[senders], sh)
            radial = e3nn.bessel(jnp.linalg.norm(gaps, axis=-1), 3, 2.0)
            scale = nn.Dense(messages.irreps.num_irreps)(radial)
            messages = messages * scale
            total = e3nn.scatter_sum(messages, dst=receivers, output_size=positions.shape[0])
            return e3nn.flax.Linear("2x0e + 1o")(total)

    features = e3nn.IrrepsArray("2x0e + 1o", rows(4, 5))
    places = rows(4, 3, seed=1)
    senders, receivers = np.array([0, 1, 2, 3], "int32"), np.array([1, 2, 3, 0], "int32")
    layer = Layer()
    params = layer.init(jax.random.key(0), features, places, senders, receivers)

    def fn(params, positions):
        return layer.apply(params, features, positions, senders, receivers).array

    return fn, (params, places)


@program("e3nn_jax", wrt=(0,), rtol=1e-3)
def e3nn_rotations():
    import e3nn_jax as e3nn

    def fn(x):
        turn = e3nn.angles_to_matrix(x[0], x[1], x[2])
        y = e3nn.IrrepsArray("1o + 2e", jnp.tile(x, 3)[:8])
        return y.transform_by_matrix(turn).array, e3nn.matrix_to_quaternion(turn)

    return fn, (np.array([0.3, 0.9, -0.4], "float32"),)


# -- optax ---------------------------------------------------------------------------------------


def bowl(params):
    return jnp.sum((params["w"] - 1.0) ** 2) + jnp.sum(jnp.cos(params["b"]) ** 2)


PARAMS = {"w": rows(4, 3), "b": rows(3, seed=1)}


def descend(tx, params, steps=3, with_value=False):
    def fn(params):
        def step(carry, _):
            params, state = carry
            value, slopes = jax.value_and_grad(bowl)(params)
            extra = {"value": value, "grad": slopes, "value_fn": bowl} if with_value else {}
            updates, state = tx.update(slopes, state, params, **extra)
            return (optax.apply_updates(params, updates), state), value

        (params, _), values = jax.lax.scan(step, (params, tx.init(params)), None, steps)
        return params, values

    return fn, (params,)


@program("optax", wrt=())
def optax_lbfgs_with_line_search():
    return descend(optax.lbfgs(), PARAMS, with_value=True)


@program("optax", wrt=())
def optax_backtracking_line_search():
    tx = optax.chain(
        optax.sgd(1.0), optax.scale_by_backtracking_linesearch(max_backtracking_steps=5)
    )
    return descend(tx, PARAMS, with_value=True)


@program("optax")
def optax_unrolled_and_differentiated():
    return descend(optax.adam(0.1), PARAMS)


@program("optax", wrt=())
def optax_many_wrappers():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 5)
    inner = optax.chain(
        optax.adaptive_grad_clip(0.1), optax.add_noise(0.01, 0.5, key=jax.random.key(0)),
        optax.scale_by_radam(), optax.add_decayed_weights(1e-3), optax.scale_by_schedule(schedule),
        optax.scale(-1.0), optax.ema(0.9),
    )  # fmt: skip
    labelled = optax.partition(
        {"a": inner, "b": optax.apply_if_finite(optax.adafactor(0.1), 2)}, {"w": "a", "b": "b"}
    )
    return descend(optax.MultiSteps(labelled, 2), PARAMS)


@program("optax", wrt=())
def optax_contributed():
    from optax import contrib

    def fn(params):
        found = []
        for tx in (contrib.prodigy(), contrib.schedule_free_adamw(0.1), contrib.muon(0.1)):
            state, at = tx.init(params), params
            for _ in range(2):
                slopes = jax.grad(bowl)(at)
                updates, state = tx.update(slopes, state, at)
                at = optax.apply_updates(at, updates)
            found.append(at)
        sam = contrib.sam(optax.sgd(0.1), optax.sgd(0.05), opaque_mode=True, sync_period=2)
        slopes = jax.grad(bowl)(params)
        updates, _ = sam.update(
            slopes, sam.init(params), params, grad_fn=lambda p, i: jax.grad(bowl)(p)
        )
        return found, updates

    return fn, (PARAMS,)


@program("optax")
def optax_losses():
    def fn(x, y):
        labels = jnp.array([[1, 2, 0], [2, 0, 0]])
        pads = jnp.array([[0.0, 0, 1], [0, 1, 1]])
        return [
            optax.ctc_loss(x.reshape(2, 6, 3), jnp.zeros((2, 6)), labels, pads),
            optax.huber_loss(x, y), optax.cosine_similarity(x, y),
            optax.losses.ntxent(x[:4], jnp.array([0, 0, 1, 1])),
            optax.sigmoid_focal_loss(x, jax.nn.sigmoid(y)),
            optax.projections.projection_simplex(x[0]),
            optax.perturbations.make_perturbed_fun(jnp.sort, 4)(jax.random.key(0), x[0])
        ]  # fmt: skip

    return fn, (rows(12, 3), rows(12, 3, seed=1))


# -- jax itself ----------------------------------------------------------------------------------


@program("jax", wrt=(0, 1))
def jax_sparse_network():
    from jax.experimental import sparse

    dense = rows(6, 5) * (rows(6, 5, seed=1) > 0.5)
    matrix = sparse.BCOO.fromdense(dense)

    def fn(data, x):
        a = sparse.BCOO((data, matrix.indices), shape=matrix.shape)
        h = jnp.tanh(a @ x)
        pulled = sparse.sparsify(lambda m, v: m.T @ v)(a, h)
        return h, pulled, (a * 2.0).todense(), a.sum(0).todense()

    return fn, (np.asarray(matrix.data), rows(5, 2, seed=2))


@program("jax", wrt=())
def jax_apply_at_indices():
    def fn(x, i):
        y = x.at[i].apply(jnp.tanh)
        return y, x.at[0, 1].apply(lambda v: v**2 + 1), x.at[:, i % 3].apply(jnp.exp)

    return fn, (rows(4, 3), np.array([1, 3, 1], "int32"))


@program("jax", wrt=(0, 1))
def jax_pallas_interpreted():
    from jax.experimental import pallas as pl

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.sin(x_ref[...]) * y_ref[...]

    @jax.custom_vjp
    def product(x, y):
        return pl.pallas_call(
            kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(2,),
            in_specs=[pl.BlockSpec((4, 4), lambda i: (i, 0))] * 2,
            out_specs=pl.BlockSpec((4, 4), lambda i: (i, 0)), interpret=True,
        )(x, y)  # fmt: skip

    def forward(x, y):
        return product(x, y), (x, y)

    product.defvjp(forward, lambda kept, d: (d * jnp.cos(kept[0]) * kept[1], d * jnp.sin(kept[0])))
    return lambda x, y: jnp.tanh(product(x, y)), (rows(8, 4), rows(8, 4, seed=1))


@program("jax")
def jax_checkpoint_with_policies():
    policies = jax.checkpoint_policies

    def fn(params, x):
        from jax.ad_checkpoint import checkpoint_name

        def block(x, w, policy):
            @functools.partial(jax.checkpoint, policy=policy)
            def run(x, w):
                return jnp.sin(checkpoint_name(x @ w, "product"))

            return run(x, w)

        for w, policy in zip(
            params,
            (None, policies.dots_saveable, policies.save_only_these_names("product")),
            strict=True,
        ):
            x = block(x, w, policy)
        return jax.grad(lambda x: jnp.sum(block(x, params[0], None) ** 2))(x), x

    return fn, ([rows(4, 4, seed=i) for i in range(3)], rows(2, 4))


@program("jax")
def jax_nested_jit_with_options():
    @functools.partial(jax.jit, static_argnums=1, static_argnames="mode", donate_argnums=0)
    def inner(x, power, *, mode="add"):
        return x**power + 1 if mode == "add" else x**power * 2

    @functools.partial(jax.jit, inline=True, keep_unused=True)
    def middle(x, unused):
        return inner(x + 1, 3, mode="multiply")

    return lambda x: jax.jit(lambda x: middle(inner(x * 1, 2), x))(x), (rows(3),)


@program("jax", wrt=())
def jax_keys_as_values():
    def fn(key, choose):
        keys = jax.random.split(key, 4)
        stacked = jnp.stack([keys[0], keys[1]])
        chosen = jnp.where(choose[:, None], stacked[:, None], keys[None, 2:])
        mapped = jax.vmap(lambda k, c: jax.lax.cond(c, jax.random.normal, jax.random.uniform, k))
        branch = jax.lax.switch(choose.sum(), [lambda k: k, jax.random.clone, lambda k: k], key)
        sorted_keys = keys[jnp.argsort(jax.random.uniform(key, (4,)))]
        return (
            chosen, mapped(keys[:2], choose), branch, sorted_keys.at[1].set(keys[0]),
            jax.random.permutation(key, 5), jax.random.choice(key, 9, (4,), replace=False),
            keys.reshape(2, 2).T, jnp.concatenate([keys, stacked])[::2],
            jax.random.key_data(jax.vmap(jax.random.split)(keys)),
        )  # fmt: skip

    return fn, (jax.random.key(0), np.array([True, False]))
