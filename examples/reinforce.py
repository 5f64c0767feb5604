"""REINFORCE for a pole on a cart: environment, policy and learner are one graph.

A batch of episodes is a scan over time, whose body contains the physics and the policy. The
training step, including the optimizer, is in the same graph, so no data leaves the device. The
policy learns to keep the pole up for the whole episode. Williams, "Simple statistical
gradient-following algorithms", 1992; the cart is from Barto, Sutton and Anderson, 1983.

python examples/reinforce.py --updates 150
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import optax

import graphc as gc

GRAVITY, CART, POLE, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5  # m/s², kg, kg, m
FORCE, SECONDS = 10.0, 0.02  # of a push, and of a step
FARTHEST, STEEPEST = 2.4, math.radians(12)  # an episode ends beyond these
DISCOUNT = 0.99


class Learner(NamedTuple):
    """The graph and its fetches; `noise` and `start` may be fed to fix the episodes."""

    graph: gc.Graph
    train: gc.Node
    loss: gc.Tensor
    lengths: gc.Tensor  # [episodes]: the number of steps with the pole up
    start: gc.Tensor  # [episodes, 4]
    noise: gc.Tensor  # [steps, episodes] in [0, 1): random numbers for the actions


def move(state: gc.Tensor, right: gc.Tensor) -> gc.Tensor:
    """The states `[episodes, 4]` (position, speed, angle, rotation) one step after a push."""
    place, speed, angle, turning = gc.unstack(state, axis=1)
    push = gc.where(right, FORCE, -FORCE)
    sine, cosine, mass = gc.sin(angle), gc.cos(angle), CART + POLE
    pulled = (push + POLE * HALF_LENGTH * gc.square(turning) * sine) / mass
    inertia = HALF_LENGTH * (4 / 3 - POLE * gc.square(cosine) / mass)
    twist = (GRAVITY * sine - cosine * pulled) / inertia
    gain = pulled - POLE * HALF_LENGTH * twist * cosine / mass
    speeds = gc.stack([speed, gain, turning, twist], axis=1)
    return state + SECONDS * speeds


def is_up(state: gc.Tensor) -> gc.Tensor:
    """Whether each episode continues."""
    near = gc.less_equal(gc.abs(state[:, 0]), FARTHEST)
    return gc.logical_and(near, gc.less_equal(gc.abs(state[:, 2]), STEEPEST))


class Policy:
    """The logit of a push to the right, for states `[..., 4]`."""

    def __init__(self, units: int) -> None:
        self.hidden = gc.nn.Dense(units, activation=gc.tanh, name="hidden")
        self.out = gc.nn.Dense(1, name="out")

    def __call__(self, state: gc.Tensor) -> gc.Tensor:
        return gc.squeeze(self.out(self.hidden(state)), -1)


def play(policy: Policy, start: gc.Tensor, noise: gc.Tensor) -> tuple[gc.Tensor, ...]:
    """A batch of episodes, each result `[steps, episodes, ...]`: states, pushes, and who was up."""

    def turn(carry: tuple, chance: gc.Tensor) -> tuple:
        state, up = carry
        right = gc.less(chance, gc.sigmoid(policy(state)))
        after = move(state, right)
        return (after, gc.logical_and(up, is_up(after))), (state, right, up)

    _, (states, pushes, up) = gc.scan(turn, (start, is_up(start)), noise, name="play")
    return gc.stop_gradient(states), pushes, up  # actions pass no gradient, so none is computed


def returns(rewards: gc.Tensor) -> gc.Tensor:
    """The discounted sum of future rewards, from rewards `[steps, episodes]`."""

    def turn(total: gc.Tensor, reward: gc.Tensor) -> tuple:
        total = reward + DISCOUNT * total
        return total, total

    return gc.scan(turn, gc.zeros_like(rewards[0]), rewards, reverse=True, name="returns")[1]


def policy_loss(policy: Policy, states: gc.Tensor, pushes: gc.Tensor, up: gc.Tensor) -> gc.Tensor:
    """The loss of the policy gradient: minus log-probabilities, weighted with the advantages.

    The advantage is how much better an episode continues than the others at the same step.
    """
    counts = gc.cast(up, "float32")
    worth = returns(counts)
    alive = gc.maximum(gc.reduce_sum(counts, axis=1, keepdims=True), 1)
    advantage = (worth - gc.reduce_sum(worth, axis=1, keepdims=True) / alive) * counts
    total = gc.reduce_sum(counts)
    spread = gc.sqrt(gc.reduce_sum(gc.square(advantage)) / total)
    surprise = gc.nn.sigmoid_cross_entropy(logits=policy(states), labels=gc.cast(pushes, "float32"))
    # One more step in the divisor: if all episodes are equal, there is nothing to learn.
    return gc.reduce_sum(surprise * advantage) / (spread + 1) / total


def build(
    *,
    episodes: int = 32,
    steps: int = 200,
    units: int = 32,
    tx: optax.GradientTransformation | None = None,
) -> Learner:
    """The whole learner: each update uses `episodes` episodes of at most `steps` steps."""
    graph = gc.Graph(seed=0, name="reinforce")
    with graph:
        start = gc.random.uniform((episodes, 4), -0.05, 0.05, name="start")
        noise = gc.random.uniform((steps, episodes), name="noise")
        policy = Policy(units)
        states, pushes, up = play(policy, start, noise)
        lengths = gc.reduce_sum(gc.cast(up, "float32"), axis=0, name="lengths")
        loss = gc.identity(policy_loss(policy, states, pushes, up), name="loss")
        train = gc.minimize(loss, tx or optax.adam(1e-2), name="train")
    return Learner(graph, train, loss, lengths, start, noise)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=120)
    parser.add_argument("--episodes", type=int, default=32, help="an update")
    parser.add_argument("--steps", type=int, default=200, help="of an episode, at most")
    options = parser.parse_args(argv)

    learner = build(episodes=options.episodes, steps=options.steps)
    session = gc.Session(learner.graph)
    begin, block = time.perf_counter(), min(20, options.updates)
    for done in range(block, options.updates + 1, block):  # a block is one loop on the device
        _, lengths = session.run_steps([learner.train, learner.lengths], [{}] * block, block)
        print(f"update {done}: the pole stays up for {np.mean(np.asarray(lengths)):.1f} steps")
    frames = options.updates * options.episodes * options.steps
    print(f"{frames / (time.perf_counter() - begin):,.0f} frames a second, compiling included")

    surely = np.full(learner.noise.shape, 0.5, np.float32)  # always takes the more likely action
    lengths = session.run(learner.lengths, {learner.noise: surely})
    print(f"without chance {np.mean(np.asarray(lengths)):.1f} of {options.steps}")


if __name__ == "__main__":
    main()
