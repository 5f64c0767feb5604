"""Differential equations, roots, minima and linear systems: diffrax, optimistix, lineax, jaxopt."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.zoo.programs import program

A = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], "float32")
V = np.array([1.0, 2.0, 3.0], "float32")
LOOSE = {"rtol": 1e-5, "atol": 1e-5}

# -- diffrax -------------------------------------------------------------------------------------


@program("diffrax")
def diffrax_adaptive():
    import diffrax as d

    def solve(y0):
        steps = d.PIDController(rtol=1e-4, atol=1e-5)
        at = d.SaveAt(ts=jnp.linspace(0.0, 1.0, 4))
        term = d.ODETerm(lambda t, y, args: -y)
        found = d.diffeqsolve(
            term, d.Tsit5(), 0.0, 1.0, 0.1, y0, saveat=at, stepsize_controller=steps
        )
        return found.ys

    return solve, (V,)


@program("diffrax")
def diffrax_fixed():
    import diffrax as d

    term = d.ODETerm(lambda t, y, args: -y * y)
    return lambda y0: d.diffeqsolve(term, d.Euler(), 0.0, 1.0, 0.1, y0).ys, (V,)


def lotka(t, y, args):
    prey, hunters = y
    return prey * (args[0] - args[1] * hunters), hunters * (args[1] * prey - args[2])


@program("diffrax", wrt=(0, 1), rtol=1e-3)
def diffrax_backsolve_adjoint():
    import diffrax as d

    def solve(y0, args):
        return d.diffeqsolve(
            d.ODETerm(lotka), d.Dopri5(), 0.0, 1.0, 0.1, y0, args,
            stepsize_controller=d.PIDController(rtol=1e-4, atol=1e-5),
            adjoint=d.BacksolveAdjoint(),
        ).ys  # fmt: skip

    return solve, ((np.float32(1.0), np.float32(0.5)), np.array([1.1, 0.4, 0.4], "float32"))


@program("diffrax", wrt=(0, 1))
def diffrax_stiff_implicit():
    import diffrax as d

    def solve(y0, rate):
        return d.diffeqsolve(
            d.ODETerm(lambda t, y, r: -r * (y - jnp.cos(t))), d.Kvaerno3(), 0.0, 0.5, 0.1, y0, rate,
            stepsize_controller=d.PIDController(rtol=1e-3, atol=1e-4), max_steps=64,
        ).ys  # fmt: skip

    return solve, (V, np.float32(20.0))


@program("diffrax")
def diffrax_stochastic():
    import diffrax as d

    def solve(y0, key):
        motion = d.VirtualBrownianTree(0.0, 1.0, 1e-2, (), key)
        terms = d.MultiTerm(
            d.ODETerm(lambda t, y, a: -y), d.ControlTerm(lambda t, y, a: 0.1 * y, motion)
        )
        return d.diffeqsolve(terms, d.Heun(), 0.0, 1.0, 0.1, y0).ys

    return solve, (V, jax.random.key(0))


@program("diffrax", wrt=())
def diffrax_event_and_dense_output():
    import diffrax as d

    def solve(height):
        event = d.Event(lambda t, y, args, **kwargs: y[0])
        found = d.diffeqsolve(
            d.ODETerm(lambda t, y, a: jnp.stack([y[1], jnp.full((), -9.8)])), d.Tsit5(),
            0.0, 3.0, 0.05, jnp.stack([height, jnp.zeros(())]), event=event, max_steps=256,
            stepsize_controller=d.PIDController(rtol=1e-3, atol=1e-3),
            saveat=d.SaveAt(t1=True, dense=True),
        )  # fmt: skip
        return found.ts, found.ys, found.evaluate(0.1)

    return solve, (np.float32(3.0),)


@program("diffrax")
def diffrax_neural_in_a_batch():
    import diffrax as d
    import equinox as eqx

    model = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    params, rest = eqx.partition(model, eqx.is_inexact_array)

    def solve(params, y0):
        field = eqx.combine(params, rest)
        term = d.ODETerm(lambda t, y, args: field(y))

        def one(y0):
            return d.diffeqsolve(
                term, d.Tsit5(), 0.0, 1.0, 0.2, y0, saveat=d.SaveAt(steps=True), max_steps=8,
                stepsize_controller=d.PIDController(rtol=1e-2, atol=1e-2),
                adjoint=d.RecursiveCheckpointAdjoint(checkpoints=3),
            ).ys  # fmt: skip

        ys = jax.vmap(one)(y0)
        return jnp.where(jnp.isfinite(ys), ys, 0.0)

    return solve, (params, np.random.default_rng(0).normal(size=(3, 2)).astype("float32"))


# -- lineax --------------------------------------------------------------------------------------


@program("lineax", wrt=(0, 1))
def lineax_direct():
    import lineax as lx

    return lambda a, b: lx.linear_solve(lx.MatrixLinearOperator(a), b).value, (A, V)


@program("lineax", wrt=(0, 1))
def lineax_iterative():
    import lineax as lx

    def solve(a, b):
        operator = lx.MatrixLinearOperator(a, lx.positive_semidefinite_tag)
        symmetric = lx.linear_solve(operator, b, lx.CG(**LOOSE)).value
        general = lx.linear_solve(lx.MatrixLinearOperator(a), b, lx.GMRES(**LOOSE)).value
        return symmetric, general

    return solve, (A, V)


@program("lineax", wrt=(0, 1))
def lineax_least_squares():
    import lineax as lx

    def solve(a, b):
        tall = lx.MatrixLinearOperator(a[:, :2])
        return lx.linear_solve(tall, b, lx.QR()).value, lx.linear_solve(tall, b, lx.SVD()).value

    return solve, (A, V)


@program("lineax", wrt=(0, 1))
def lineax_structured_operators():
    import lineax as lx

    def solve(a, b):
        tri = lx.TridiagonalLinearOperator(jnp.diag(a), jnp.diag(a, -1), jnp.diag(a, 1))
        jac = lx.JacobianLinearOperator(lambda y, args: jnp.sin(y) + a @ y, b)
        return lx.linear_solve(tri, b).value, lx.linear_solve(jac, b, lx.LU()).value

    return solve, (A, V)


# -- optimistix ----------------------------------------------------------------------------------


@program("optimistix")
def optimistix_root():
    import optimistix as ox

    def root(a):
        found = ox.root_find(lambda y, a: y**2 - a, ox.Newton(**LOOSE), jnp.ones(3), args=a)
        other = ox.root_find(lambda y, a: y**3 - a, ox.Chord(**LOOSE), jnp.ones(3) * 1.2, args=a)
        return found.value, other.value

    return root, (V,)


@program("optimistix")
def optimistix_minimum():
    import optimistix as ox

    def minimum(a):
        found = ox.minimise(
            lambda y, a: jnp.sum((y - a) ** 2), ox.BFGS(**LOOSE), jnp.zeros(3), args=a
        )
        return found.value

    return minimum, (V,)


@program("optimistix")
def optimistix_fit():
    import optimistix as ox

    def fit(a):
        found = ox.least_squares(
            lambda y, a: y - a, ox.LevenbergMarquardt(**LOOSE), jnp.zeros(3), args=a
        )
        other = ox.least_squares(lambda y, a: y - a, ox.Dogleg(**LOOSE), jnp.zeros(3), args=a)
        return found.value, other.value

    return fit, (V,)


@program("optimistix")
def optimistix_fixed_point_and_bisection():
    import optimistix as ox

    def fn(a):
        point = ox.fixed_point(
            lambda y, a: jnp.cos(y) * a / 4, ox.FixedPointIteration(**LOOSE), jnp.ones(3), args=a
        )
        half = ox.root_find(
            lambda y, a: y**3 - a[0], ox.Bisection(**LOOSE), 0.5, args=a,
            options={"lower": 0.0, "upper": 3.0},
        )  # fmt: skip
        return point.value, half.value

    return fn, (V,)


@program("optimistix", wrt=())
def optimistix_nelder_mead_and_optax():
    import optax
    import optimistix as ox

    def fn(a):
        def cost(y, a):
            return jnp.sum((y - a) ** 2)

        simplex = ox.minimise(
            cost, ox.NelderMead(1e-3, 1e-3), jnp.zeros(3), args=a, max_steps=200, throw=False
        )
        steps = ox.minimise(
            cost, ox.OptaxMinimiser(optax.adam(0.1), 1e-3, 1e-3), jnp.zeros(3), args=a,
            max_steps=300, throw=False,
        )  # fmt: skip
        return simplex.value, steps.value

    return fn, (V,)


# -- jaxopt --------------------------------------------------------------------------------------


@program("jaxopt")
def jaxopt_descent():
    import jaxopt

    solver = jaxopt.GradientDescent(lambda x, a: jnp.sum((x - a) ** 2), maxiter=50)
    return lambda a: solver.run(jnp.zeros(3), a).params, (V,)


@program("jaxopt")
def jaxopt_lbfgs():
    import jaxopt

    solver = jaxopt.LBFGS(lambda x, a: jnp.sum((x - a) ** 2), maxiter=20)
    return lambda a: solver.run(jnp.zeros(3), a).params, (V,)


@program("jaxopt")
def jaxopt_root():
    import jaxopt

    solver = jaxopt.FixedPointIteration(lambda x, a: 0.5 * (x + a / x), maxiter=50)
    return lambda a: solver.run(jnp.ones(3), a).params, (V,)


@program("jaxopt", rtol=1e-3)
def jaxopt_projected_and_proximal():
    import jaxopt
    from jaxopt.projection import projection_simplex

    def fn(a):
        def cost(x, a):
            return jnp.sum((x - a) ** 2)

        projected = jaxopt.ProjectedGradient(cost, projection_simplex, maxiter=50)
        proximal = jaxopt.ProximalGradient(cost, jaxopt.prox.prox_lasso, maxiter=50)
        start = jnp.full((3,), 1 / 3)
        one = projected.run(start, hyperparams_proj=1.0, a=a).params
        return one, proximal.run(start, hyperparams_prox=0.1, a=a).params

    return fn, (V / 3,)


@program("jaxopt", wrt=(0, 1), rtol=1e-3)
def jaxopt_quadratic_program():
    import jaxopt

    def fn(a, b):
        solver = jaxopt.OSQP(maxiter=200, tol=1e-4)
        found = solver.run(params_obj=(a, -b), params_eq=(jnp.ones((1, 3)), jnp.ones(1)))
        return found.params.primal

    return fn, (A, V)


@program("jaxopt")
def jaxopt_gauss_newton_and_anderson():
    import jaxopt

    def fn(a):
        fit = jaxopt.GaussNewton(lambda x, a: jnp.exp(x) - a, maxiter=20)
        point = jaxopt.AndersonAcceleration(
            lambda x, a: jnp.cos(x) * a / 4, history_size=3, maxiter=30
        )
        return fit.run(jnp.zeros(3), a).params, point.run(jnp.ones(3), a).params

    return fn, (V,)


@program("jax")
def jax_odeint():
    from jax.experimental.ode import odeint

    def fn(args, y0):
        return odeint(lambda y, t, a: -a * y, y0, jnp.linspace(0.0, 1.0, 4), args)

    return fn, (V, V)
