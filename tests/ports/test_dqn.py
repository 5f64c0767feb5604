"""Deep Q-learning with a replay memory and a target network learns to cross a grid with walls. From
every free cell, its greedy path reaches the goal in as few steps as the shortest path."""

from collections import deque

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 3e-3
GRID = ["....G", ".###.", "...#.", ".#.#.", ".#..."]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
CELLS = [(r, c) for r in range(5) for c in range(5) if GRID[r][c] != "#"]
GOAL, DISCOUNT, BATCH = (0, 4), 0.9, 64


def move(cell, action):
    """The next cell, the reward, and whether the episode has ended."""
    row, column = cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
    if 0 <= row < 5 and 0 <= column < 5 and GRID[row][column] != "#":
        cell = row, column
    return cell, float(cell == GOAL), cell == GOAL


def shortest():
    """The number of steps from each cell to the goal."""
    steps, queue = {GOAL: 0}, deque([GOAL])
    while queue:
        cell = queue.popleft()
        for other in CELLS:
            near = any(move(other, action)[0] == cell for action in range(4))
            if other not in steps and near:
                steps[other] = steps[cell] + 1
                queue.append(other)
    return steps


@pytest.mark.slow
def test_finds_shortest_paths():
    with gc.Graph(seed=SEED) as graph:
        state = gc.placeholder((None, 2), "int32", name="state")
        action = gc.placeholder((None,), "int32", name="action")
        reward = gc.placeholder((None,), "float32", name="reward")
        next_state = gc.placeholder((None, 2), "int32", name="next_state")
        done = gc.placeholder((None,), "float32", name="done")

        def network(name):
            return gc.nn.Sequential(
                [
                    lambda s: gc.one_hot(s, 5),
                    gc.nn.Flatten(),
                    gc.nn.Dense(64, activation="relu"),
                    gc.nn.Dense(64, activation="relu"),
                    gc.nn.Dense(4),
                ],
                name=name,
            )

        online, target = network("online"), network("target")
        q = online(state)
        q_next = target(next_state)
        chosen = gc.reduce_sum(q * gc.one_hot(action, 4), axis=1)
        wanted = reward + DISCOUNT * (1.0 - done) * gc.reduce_max(q_next, axis=1)
        losses = gc.nn.huber_loss(predictions=chosen, labels=gc.stop_gradient(wanted))
        loss = gc.reduce_mean(losses)
        train = gc.minimize(loss, optax.adam(RATE), variables=online.variables)
        copies = [t.assign(o) for t, o in zip(target.variables, online.variables, strict=True)]
        update_target = gc.group(*copies)

    session = gc.Session(graph)
    session.run(update_target)
    rng = np.random.default_rng(SEED)
    memory = deque(maxlen=2000)
    cell = CELLS[0]
    for step in range(2500):
        if rng.random() < max(0.2, 1 - step / 1000):
            a = int(rng.integers(4))
        else:
            a = int(session.run(q, {state: [cell]}).argmax())
        next_cell, r, ended = move(cell, a)
        memory.append((cell, a, r, next_cell, ended))
        cell = CELLS[rng.integers(len(CELLS))] if ended or step % 30 == 0 else next_cell
        if step >= 200:
            rows = [memory[n] for n in rng.integers(len(memory), size=BATCH)]
            s, a, r, after, ended = zip(*rows, strict=True)
            feeds = {state: s, action: a, reward: r, next_state: after, done: ended}
            session.run(train, feeds)
        if step % 100 == 0:
            session.run(update_target)

    best = dict(zip(CELLS, session.run(q, {state: CELLS}).argmax(1), strict=True))
    walks = {}
    for start in CELLS:
        cell, count = start, 0
        while cell != GOAL and count < 30:
            cell, count = move(cell, best[cell])[0], count + 1
        walks[start] = count
    assert walks == shortest()
