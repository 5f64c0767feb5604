"""The stacked LSTM of `char_lstm` in plain JAX."""

import char_lstm
import jax
from jax import numpy as jnp


def lstm(p, x):
    """The outputs `[batch, time, units]` of one layer."""
    units = p["recurrent_kernel"].shape[0]

    def turn(state, projected):
        h, c = state
        i, f, g, o = jnp.split(projected + h @ p["recurrent_kernel"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[0], units))
    projected = x @ p["kernel"] + p["bias"]
    _, outputs = jax.lax.scan(turn, (zeros, zeros), projected.swapaxes(0, 1))
    return outputs.swapaxes(0, 1)


def network(params, tokens, layers=2):
    """The logits of the next token after each token of `tokens` [batch, time]."""

    def part(prefix):
        return {n.removeprefix(prefix): v for n, v in params.items() if n.startswith(prefix)}

    x = params["lstm/embedding/table"][tokens]
    for i in range(layers):
        x = lstm(part(f"lstm/stacked_rnn/layer{i}/cell/"), x)
    return x @ params["lstm/head/kernel"] + params["lstm/head/bias"]


def before(lines):
    """The input of the model when it predicts `lines` [batch, time]."""
    return jnp.pad(lines[:, :-1], ((0, 0), (1, 0)), constant_values=char_lstm.NEWLINE)
