"""REINFORCE: the physics in NumPy, the learner in plain JAX, and whether it learns."""

import math

import jax
import numpy as np
import optax
import pytest
import reinforce
from jax import numpy as jnp

import graphc as gc
from tests.near import assert_near

SIZES = {"episodes": 6, "steps": 30, "units": 8}


def moved(state, right):
    """The cart as in Gymnasium's CartPole-v1, for one state or many, in NumPy or JAX."""
    x, v, angle, turning = state.T
    force = jnp.where(right, 10.0, -10.0)
    total, moment = 1.1, 0.05
    part = (force + moment * turning**2 * jnp.sin(angle)) / total
    twist = (9.8 * jnp.sin(angle) - jnp.cos(angle) * part) / (
        0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / total)
    )
    gain = part - moment * twist * jnp.cos(angle) / total
    return state + 0.02 * jnp.stack([v, gain, turning, twist], axis=-1)


def test_the_physics() -> None:
    rng = np.random.default_rng(0)
    states = rng.uniform(-2, 2, (20, 4)).astype(np.float32)
    pushes = rng.random(20) < 0.5
    graph = gc.Graph()
    with graph:
        s, p = gc.constant(states), gc.constant(pushes)
        fetches = reinforce.move(s, p), reinforce.is_up(s)
    after, up = gc.Session(graph).run(fetches)
    assert_near(after, moved(states, pushes), rtol=1e-5, atol=1e-6)
    within = (np.abs(states[:, 0]) <= 2.4) & (np.abs(states[:, 2]) <= math.radians(12))
    np.testing.assert_array_equal(up, within)


def test_returns_are_discounted_sums_of_what_follows() -> None:
    rewards = np.random.default_rng(0).random((7, 3)).astype(np.float32)
    expected = [
        sum(0.99 ** (j - i) * rewards[j] for j in range(i, len(rewards)))
        for i in range(len(rewards))
    ]
    graph = gc.Graph()
    with graph:
        found = reinforce.returns(gc.constant(rewards))
    assert_near(gc.Session(graph).run(found), expected, rtol=1e-5)


# -- the learner in plain JAX ------------------------------------------------------------------


def logit(params, state):
    hidden = jnp.tanh(state @ params["hidden/kernel"] + params["hidden/bias"])
    return (hidden @ params["out/kernel"] + params["out/bias"])[..., 0]


def standing(state):
    return (jnp.abs(state[:, 0]) <= 2.4) & (jnp.abs(state[:, 2]) <= math.radians(12))


def loss_of(params, start, noise):
    def turn(carry, chance):
        state, up = carry
        right = chance < jax.nn.sigmoid(logit(params, state))
        after = moved(state, right)
        return (after, up & standing(after)), (state, right, up)

    _, (states, pushes, up) = jax.lax.scan(turn, (start, standing(start)), noise)
    up = up.astype(jnp.float32)
    steps = jnp.arange(len(up))
    later = steps - steps[:, None]
    worth = jnp.where(later >= 0, 0.99**later, 0.0) @ up
    alive = jnp.maximum(up.sum(1, keepdims=True), 1)
    advantage = (worth - worth.sum(1, keepdims=True) / alive) * up
    spread = jnp.sqrt((advantage**2).sum() / up.sum()) + 1
    surprise = optax.sigmoid_binary_cross_entropy(logit(params, states), pushes)
    return (surprise * advantage).sum() / spread / up.sum()


def test_the_learner_equals_the_same_in_jax() -> None:
    tx = optax.adam(1e-2)
    learner = reinforce.build(**SIZES, tx=tx)
    session = gc.Session(learner.graph)
    names = [v.name for v in learner.graph.variables.values() if v.trainable]
    params = {name: np.array(session.get(name)) for name in names}
    opt_state = tx.init(params)

    @jax.jit
    def step(params, opt_state, start, noise):
        loss, slopes = jax.value_and_grad(loss_of)(params, start, noise)
        updates, opt_state = tx.update(slopes, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    rng = np.random.default_rng(0)
    for _ in range(20):
        start = rng.uniform(-0.05, 0.05, learner.start.shape).astype(np.float32)
        noise = rng.random(learner.noise.shape, np.float32)
        feeds = {learner.start: start, learner.noise: noise}
        _, mine = session.run([learner.train, learner.loss], feeds)
        params, opt_state, loss = step(params, opt_state, start, noise)
        assert float(mine) == pytest.approx(float(loss), abs=1e-4)
    for name in names:
        assert_near(session.get(name), params[name], rtol=1e-7, atol=1e-4)


@pytest.mark.slow
def test_the_pole_stays_up_longer_and_longer(capsys: pytest.CaptureFixture[str]) -> None:
    reinforce.main(["--updates", "60", "--episodes", "24", "--steps", "100"])
    lines = capsys.readouterr().out.splitlines()
    first, *_, last = (float(line.split("up for ")[1].split()[0]) for line in lines[:3])
    assert first < 60
    assert last > 80
    assert float(lines[-1].split("without chance ")[1].split()[0]) > 90
