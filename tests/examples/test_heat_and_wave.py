"""The heat and the wave equation compared with known properties of their solutions."""

import heat_and_wave
import numpy as np
import pytest

import graphc as gc
from tests.near import assert_near


def test_a_sine_wave_fades_and_swings_as_it_should() -> None:
    points, seconds = 15, 0.05
    places = np.pi * np.arange(1, points + 1) / (points + 1)
    u = np.outer(np.sin(places), np.sin(2 * places))
    k = np.pi * np.sqrt(5)
    faded = heat_and_wave.series(u, lambda k: np.exp(-seconds * k**2))
    assert_near(faded, u * np.exp(-seconds * k**2), rtol=1e-7, atol=1e-14)
    swung = heat_and_wave.series(u, lambda k: np.cos(seconds * k))
    assert_near(swung, u * np.cos(seconds * k), rtol=1e-7, atol=1e-14)


def furthest(points: int) -> tuple[float, float]:
    """The errors of the heat and the wave, compared with the analytic solutions."""
    found = heat_and_wave.forward(points, 0.4)
    heat = np.abs(found["heat"] - heat_and_wave.exact_heat(points, 0.04)).max()
    wave = np.abs(found["wave"] - heat_and_wave.exact_wave(points, 0.4)).max()
    energy = found["energy"]
    assert np.ptp(energy) < 1e-12 * energy[0]  # leapfrog conserves it up to rounding
    return heat, wave


def test_errors_fall_with_the_square_of_the_grid() -> None:
    coarse, fine = furthest(15), furthest(31)
    assert fine[0] < 1e-3
    assert fine[1] < 2e-2
    for wide, narrow in zip(coarse, fine, strict=True):
        assert 3 < wide / narrow < 8


def stepped(a: float, points: int, seconds: float, steps: int) -> float:
    """The sum of squares of the heat after explicit Euler steps, in NumPy."""
    u = heat_and_wave.bump(points)
    for _ in range(steps):
        p = np.pad(u, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        u = u + seconds / steps * a * (around - 4 * u) * (points + 1) ** 2
    return float(np.sum(u**2))


def test_the_gradient_through_the_steps_is_that_of_finite_differences() -> None:
    points, seconds, steps = 15, 0.02, 40
    graph = gc.Graph()
    with graph:
        a = gc.placeholder((), "float64", name="a")
        start = gc.constant(heat_and_wave.bump(points))
        total = gc.reduce_sum(gc.square(heat_and_wave.heat(start, a, points, seconds, steps)))
        (slope,) = gc.gradients(total, [a])
    value, found = gc.Session(graph).run([total, slope], {a: np.float64(0.5)})
    assert float(value) == pytest.approx(stepped(0.5, points, seconds, steps), rel=1e-12)
    above, below = (stepped(0.5 + e, points, seconds, steps) for e in (1e-5, -1e-5))
    assert float(found) == pytest.approx((above - below) / 2e-5, rel=1e-7)


def test_the_conductivity_is_found() -> None:
    tries = heat_and_wave.find_conductivity(heat_and_wave.exact_heat(15, 0.05), 0.05)
    assert abs(tries[0] - 0.5) > 0.4
    assert tries[-1] == pytest.approx(heat_and_wave.CONDUCTIVITY, rel=0.02)


def test_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    heat_and_wave.main(["--points", "31", "--seconds", "0.2"])
    output = capsys.readouterr().out
    assert "conductivity from one picture: 0.50" in output
