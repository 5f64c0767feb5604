"""Functions of other packages, which need the extra `zoo`: values and gradients equal JAX's own."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import graphc as gc
from tests.near import assert_near

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

A = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], "float32")
V = np.array([1.0, 2.0, 3.0], "float32")
ROWS = np.arange(12, dtype="float32").reshape(4, 3) / 10
LOOSE = {"rtol": 1e-5, "atol": 1e-5}


def diffrax_adaptive(d):
    def solve(y0):
        steps = d.PIDController(rtol=1e-4, atol=1e-5)
        at = d.SaveAt(ts=jnp.linspace(0.0, 1.0, 4))
        term = d.ODETerm(lambda t, y, args: -y)
        found = d.diffeqsolve(
            term, d.Tsit5(), 0.0, 1.0, 0.1, y0, saveat=at, stepsize_controller=steps
        )
        return found.ys

    return solve, (V,)


def diffrax_fixed(d):
    term = d.ODETerm(lambda t, y, args: -y * y)
    return lambda y0: d.diffeqsolve(term, d.Euler(), 0.0, 1.0, 0.1, y0).ys, (V,)


def lineax_direct(lx):
    return lambda a, b: lx.linear_solve(lx.MatrixLinearOperator(a), b).value, (A, V)


def lineax_iterative(lx):
    def solve(a, b):
        operator = lx.MatrixLinearOperator(a, lx.positive_semidefinite_tag)
        return lx.linear_solve(operator, b, lx.CG(**LOOSE)).value

    return solve, (A, V)


def lineax_least_squares(lx):
    def solve(a, b):
        return lx.linear_solve(lx.MatrixLinearOperator(a[:, :2]), b, lx.QR()).value

    return solve, (A, V)


def optimistix_root(ox):
    def root(a):
        found = ox.root_find(lambda y, a: y**2 - a, ox.Newton(**LOOSE), jnp.ones(3), args=a)
        return found.value

    return root, (V,)


def optimistix_minimum(ox):
    def minimum(a):
        found = ox.minimise(
            lambda y, a: jnp.sum((y - a) ** 2), ox.BFGS(**LOOSE), jnp.zeros(3), args=a
        )
        return found.value

    return minimum, (V,)


def optimistix_fit(ox):
    def fit(a):
        found = ox.least_squares(
            lambda y, a: y - a, ox.LevenbergMarquardt(**LOOSE), jnp.zeros(3), args=a
        )
        return found.value

    return fit, (V,)


def jaxopt_descent(jaxopt):
    solver = jaxopt.GradientDescent(lambda x, a: jnp.sum((x - a) ** 2), maxiter=50)
    return lambda a: solver.run(jnp.zeros(3), a).params, (V,)


def jaxopt_lbfgs(jaxopt):
    solver = jaxopt.LBFGS(lambda x, a: jnp.sum((x - a) ** 2), maxiter=20)
    return lambda a: solver.run(jnp.zeros(3), a).params, (V,)


def jaxopt_root(jaxopt):
    solver = jaxopt.FixedPointIteration(lambda x, a: 0.5 * (x + a / x), maxiter=50)
    return lambda a: solver.run(jnp.ones(3), a).params, (V,)


def equinox_mlp(eqx):
    return jax.vmap(eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0))), (ROWS,)


def equinox_norm(eqx):
    layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, axis_name="batch", mode="ema")

    def normalise(x):
        mapped = jax.vmap(layer, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        return mapped(x, state)[0]

    return normalise, (ROWS,)


PROGRAMS = (
    diffrax_adaptive, diffrax_fixed, lineax_direct, lineax_iterative, lineax_least_squares,
    optimistix_root, optimistix_minimum, optimistix_fit, jaxopt_descent, jaxopt_lbfgs,
    jaxopt_root, equinox_mlp, equinox_norm,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_equals_itself(program):
    package = program.__name__.partition("_")[0]
    try:
        module = importlib.import_module(package)
    except Exception as error:  # absent, or not yet for this JAX
        pytest.skip(f"{package}: {error}")
    fn, values = program(module)

    def loss(*xs):
        return jnp.sum(fn(*xs) ** 2)

    with gc.Graph() as graph:
        xs = [gc.placeholder(value.shape, name=f"x{i}") for i, value in enumerate(values)]
        y = gc.from_jax(fn)(*xs)
        slopes = gc.gradients(gc.sum(y**2), xs)
    got = gc.Session(graph).run([y, *slopes], dict(zip(xs, values, strict=True)))
    want = [jax.jit(fn)(*values), *jax.jit(jax.grad(loss, tuple(range(len(values)))))(*values)]
    for a, b in zip(got, want, strict=True):
        assert_near(np.asarray(a), np.asarray(b), 1e-4, 1e-5)


def test_second_derivatives_of_a_solution():
    lx = pytest.importorskip("lineax")

    def solve(b):
        a = jnp.diag(1.0 + b**2) + A
        return jnp.sum(lx.linear_solve(lx.MatrixLinearOperator(a), b).value ** 2)

    with gc.Graph() as graph:
        b = gc.placeholder((3,), name="b")
        (first,) = gc.gradients(gc.from_jax(solve)(b), [b])
        (second,) = gc.gradients(gc.sum(first * V), [b])
    got = gc.Session(graph).run([first, second], {b: V})
    want = jax.grad(solve)(V), jax.grad(lambda b: jnp.sum(jax.grad(solve)(b) * V))(V)
    for a, b in zip(got, want, strict=True):
        assert_near(np.asarray(a), np.asarray(b), 1e-4, 1e-5)
