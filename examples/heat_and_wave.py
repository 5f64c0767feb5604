"""The heat and the wave equation on a square, as graphs: time steps in a scan.

u_t = a (u_xx + u_yy) and u_tt = c² (u_xx + u_yy) on the unit square, with u = 0 on its border, are
computed on a grid and compared with their sine series. Then a graph differentiates through the time
steps: from a measured heat distribution, it finds how well the material conducts.

python examples/heat_and_wave.py --points 63
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
import optax

import graphc as gc

CONDUCTIVITY = 0.5
SPEED = 1.0


def laplacian(u: gc.Tensor, points: int) -> gc.Tensor:
    """u_xx + u_yy of values `[points, points]` inside the square, by the five-point stencil."""
    p = gc.pad(u, 1)  # zeros: the border
    around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    return (around - 4.0 * u) * (points + 1) ** 2


def heat(u: gc.Tensor, a: gc.Tensor, points: int, seconds: float, steps: int) -> gc.Tensor:
    """The temperatures after `seconds`: explicit Euler steps."""
    dt = seconds / steps
    last, _ = gc.scan(
        lambda u, _: (u + dt * a * laplacian(u, points), None), u, length=steps, name="heat"
    )
    return last


def wave(u: gc.Tensor, points: int, seconds: float, steps: int) -> tuple[gc.Tensor, gc.Tensor]:
    """The heights after `seconds` from rest, by leapfrog steps, and the energy at each step."""
    dt = seconds / steps

    def turn(state: tuple, _: None) -> tuple:
        before, now = state
        after = 2.0 * now - before + dt**2 * SPEED**2 * laplacian(now, points)
        motion = gc.reduce_sum(gc.square((after - now) / dt))
        tension = gc.reduce_sum(after * laplacian(now, points))
        energy = (motion - SPEED**2 * tension) / (2 * (points + 1) ** 2)
        return (now, after), energy

    # The first step, from rest, is half a step of the formula above.
    first = u + dt**2 * SPEED**2 / 2 * laplacian(u, points)
    (_, last), energies = gc.scan(turn, (u, first), length=steps - 1, name="wave")
    return last, energies


def stable_steps(points: int, seconds: float, a: float = CONDUCTIVITY) -> tuple[int, int]:
    """How many steps the explicit schemes need to be stable, for heat and for the wave."""
    h = 1 / (points + 1)
    return math.ceil(5 * a * seconds / h**2), math.ceil(2 * SPEED * seconds / h)


def bump(points: int) -> np.ndarray:
    """The initial state: a smooth hill away from the center, float64 [points, points]."""
    x = np.arange(1, points + 1) / (points + 1)
    hill = np.exp(-80 * (x - 0.35) ** 2)
    return np.outer(hill, np.exp(-60 * (x - 0.6) ** 2))


def series(u: np.ndarray, factor: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The analytic solution: each sine wave of `u`, with frequency k (u_xx + u_yy = -k² u), is
    multiplied by `factor(k)`."""
    points = len(u)
    n = np.arange(1, points + 1)
    sines = np.sqrt(2 / (points + 1)) * np.sin(np.pi * np.outer(n, n) / (points + 1))
    k = np.pi * np.sqrt(n[:, None] ** 2 + n**2)
    return sines @ (factor(k) * (sines @ u @ sines)) @ sines


def exact_heat(points: int, seconds: float, a: float = CONDUCTIVITY) -> np.ndarray:
    return series(bump(points), lambda k: np.exp(-a * k**2 * seconds))


def exact_wave(points: int, seconds: float) -> np.ndarray:
    return series(bump(points), lambda k: np.cos(SPEED * k * seconds))


def forward(points: int, seconds: float) -> dict[str, np.ndarray]:
    """Runs both equations on the grid: "heat", "wave" and the wave's "energy" at each step."""
    heat_steps, wave_steps = stable_steps(points, seconds / 10)[0], stable_steps(points, seconds)[1]
    graph = gc.Graph(name="heat_and_wave")
    with graph:
        u = gc.placeholder((points, points), "float64", name="u")
        a = gc.constant(CONDUCTIVITY, "float64")
        heights, energy = wave(u, points, seconds, wave_steps)
        fetches = {"heat": heat(u, a, points, seconds / 10, heat_steps)}
        fetches |= {"wave": heights, "energy": energy}
    found = gc.Session(graph).run(fetches, {u: bump(points)})
    return {name: np.asarray(value) for name, value in found.items()}


def find_conductivity(measured: np.ndarray, seconds: float, steps: int = 60) -> list[float]:
    """Gradient descent through the heat equation, with the initial guess 1; returns every guess."""
    points = len(measured)
    turns = stable_steps(points, seconds, a=2.0)[0]  # stable for all values that are tried
    graph = gc.Graph(name="find_conductivity")
    with graph:
        start = gc.placeholder(measured.shape, "float64", name="start")
        seen = gc.placeholder(measured.shape, "float64", name="seen")
        log_a = gc.variable(np.float64(0.0), name="log_a")  # a stays positive
        final = heat(start, gc.exp(log_a), points, seconds, turns)
        loss = gc.reduce_mean(gc.square(final - seen)) / gc.reduce_mean(gc.square(seen))
        train = gc.minimize(loss, optax.adam(optax.cosine_decay_schedule(0.1, steps)))
    feeds = {start: np.stack([bump(points)] * steps), seen: np.stack([measured] * steps)}
    _, found = gc.Session(graph).run_steps([train, log_a], feeds, steps)
    return np.exp(np.asarray(found)).tolist()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=63, help="of the grid, along each axis")
    parser.add_argument("--seconds", type=float, default=0.5, help="of the wave")
    options = parser.parse_args(argv)
    points, seconds = options.points, options.seconds

    found = forward(points, seconds)
    height = bump(points).max()
    for name, exact in (
        ("heat", exact_heat(points, seconds / 10)),
        ("wave", exact_wave(points, seconds)),
    ):
        error = np.max(np.abs(found[name] - exact)) / height
        print(f"{name}: furthest from the analytic solution {error:.1e} of the first height")
    energy = found["energy"]
    print(f"wave: energy {energy[0]:.6f}, drifts by {np.ptp(energy) / energy[0]:.1e}")

    coarse = 15  # the measurement uses a coarse grid
    tries = find_conductivity(exact_heat(coarse, 0.05), 0.05)
    print(f"conductivity from one picture: {tries[-1]:.4f}, in truth {CONDUCTIVITY}")


if __name__ == "__main__":
    main()
