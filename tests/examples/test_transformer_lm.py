"""The transformer compared with plain JAX: training steps and generated text."""

import math
from itertools import islice

import jax
import numpy as np
import optax
import pytest
import sources
import transformer_lm
from jax import numpy as jnp

import graphc as gc
from tests.near import assert_near

SIZE = transformer_lm.Size(blocks=2, width=16, heads=2, length=12, batch=4)
STEPS = 20


def norm(p, x, at):
    centred = x - x.mean(-1, keepdims=True)
    x = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return x * p[f"{at}/scale"] + p[f"{at}/offset"]


def attend(q, k, v):
    """Attention of one head: all arguments are [batch, time, depth]."""
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
    seen = jnp.tril(jnp.ones(scores.shape[1:], bool))
    return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v


def network(p, tokens):
    p = {name.removeprefix("transformer/"): value for name, value in p.items()}
    x = p["tokens/table"][tokens] + p["places/table"][: tokens.shape[1]]
    for i in range(SIZE.blocks):
        at = f"block{i}"
        qkv = jnp.split(norm(p, x, f"{at}/norm1") @ p[f"{at}/qkv/kernel"], 3, axis=-1)
        heads = zip(*(jnp.split(part, SIZE.heads, axis=-1) for part in qkv), strict=True)
        mixed = jnp.concatenate([attend(*head) for head in heads], axis=-1)
        x = x + mixed @ p[f"{at}/out/kernel"]
        hidden = jax.nn.gelu(norm(p, x, f"{at}/norm2") @ p[f"{at}/up/kernel"])
        x = x + hidden @ p[f"{at}/down/kernel"]
    return norm(p, x, "norm") @ p["head/kernel"]


def loss_of(p, text):
    logits = network(p, text[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:]).mean()


def parameters(job, session):
    trained = [v.name for v in job.graph.variables.values() if v.trainable]
    return {name: np.array(session.get(name)) for name in trained}


@pytest.mark.slow
def test_the_training_step_equals_the_same_in_jax() -> None:
    tx = transformer_lm.optimizer(STEPS)
    job = transformer_lm.build(SIZE, tx=tx)
    session = gc.Session(job.graph)
    params = parameters(job, session)
    opt_state = tx.init(params)

    @jax.jit
    def step(params, opt_state, text):
        loss, slopes = jax.value_and_grad(loss_of)(params, text)
        updates, opt_state = tx.update(slopes, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    for feeds in islice(job.batches, STEPS):
        _, mine = session.run([job.train, job.metrics["loss"]], feeds)
        params, opt_state, loss = step(params, opt_state, **feeds)
        assert float(mine) == pytest.approx(float(loss), abs=1e-4)
    for name, value in params.items():
        assert_near(session.get(name), value, rtol=1e-7, atol=1e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.one_jax
def test_it_writes_the_likeliest_text_at_temperature_zero() -> None:
    graph = gc.Graph(seed=0)
    with graph:
        prompt = gc.placeholder(("prompts", SIZE.length), "int32", name="prompt")
        model = transformer_lm.Transformer(SIZE)
        written = transformer_lm.write(model, prompt, 10, warmth=1e-6)
    session = gc.Session(graph)
    params = {name: 10 * np.array(value) for name, value in session.values().items()}
    session.set_all(params)
    seen = next(sources.windows(sources.encode("def f(x):\n    return x + 1\n" * 9), 12, 3))
    found = session.run(written, {prompt: seen})
    for i in range(10):
        drawn = np.argmax(network(params, seen)[:, -1], axis=-1)
        np.testing.assert_array_equal(found[:, i], drawn)
        seen = np.concatenate([seen[:, 1:], drawn[:, None]], axis=1)


def test_characters_and_numbers() -> None:
    text = "if x != 'é':\n"
    assert sources.decode(sources.encode(text)) == text.replace("é", "?")
    assert len(set(sources.CHARACTERS)) == len(sources.CHARACTERS)
    known = sources.encode(sources.read(sources.TEST))
    assert np.mean(known == sources.encode("?")[0]) < 0.01


def test_it_learns(capsys: pytest.CaptureFixture[str]) -> None:
    transformer_lm.main(["--steps", "60", "--blocks", "1", "--width", "32"])
    output = capsys.readouterr().out
    assert float(output.split("test bits a character ")[1].split()[0]) < 5
    assert len(output.split("':\n", 1)[1].rstrip("\n")) > 100
