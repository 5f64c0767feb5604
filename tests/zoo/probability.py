"""Models, samplers, flows and evolution strategies: numpyro, blackjax, distrax and evosax."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.zoo.programs import program

POINTS = np.linspace(-1.0, 1.0, 8, dtype="float32")
HEIGHTS = (1.5 * POINTS + 0.3 + 0.1 * np.cos(7 * POINTS)).astype("float32")


def regression(x, y):
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.StudentT(4.0, 0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x + b, scale), obs=y)


# -- numpyro -------------------------------------------------------------------------------------


@program("numpyro")
def numpyro_log_density():
    from numpyro.infer.util import log_density

    def fn(values, x, y):
        return log_density(regression, (x, y), {}, values)[0]

    values = {"w": np.float32(0.5), "b": np.float32(0.1), "scale": np.float32(0.7)}
    return fn, (values, POINTS, HEIGHTS)


@program("numpyro", wrt=())
def numpyro_nuts():
    from numpyro.infer import MCMC, NUTS

    def fn(key, x, y):
        mcmc = MCMC(
            NUTS(regression), num_warmup=10, num_samples=10, progress_bar=False, jit_model_args=True
        )
        mcmc.run(key, x, y)
        return mcmc.get_samples()

    return fn, (jax.random.key(0), POINTS, HEIGHTS)


@program("numpyro", wrt=())
def numpyro_hmc_with_chains():
    from numpyro.infer import HMC, MCMC

    def fn(key, x, y):
        kernel = HMC(regression, num_steps=3)
        mcmc = MCMC(
            kernel, num_warmup=4, num_samples=4, num_chains=2, chain_method="vectorized",
            progress_bar=False,
        )  # fmt: skip
        mcmc.run(key, x, y)
        return mcmc.get_samples(group_by_chain=True)

    return fn, (jax.random.key(0), POINTS, HEIGHTS)


@program("numpyro", wrt=(), ordered=False)
def numpyro_variational_step():
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoMultivariateNormal

    svi = SVI(regression, AutoMultivariateNormal(regression), optax.adam(1e-2), Trace_ELBO(4))
    state = svi.init(jax.random.key(0), POINTS, HEIGHTS)

    def fn(state, x, y):
        return jax.lax.scan(lambda s, _: svi.update(s, x, y), state, None, 3)

    return fn, (state, POINTS, HEIGHTS)


@program("numpyro", ordered=False)
def numpyro_hidden_markov_chain():
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan
    from numpyro.infer.util import log_density

    def model(y):
        drift = numpyro.sample("drift", dist.Beta(2.0, 2.0))

        def step(state, y):
            state = numpyro.sample("z", dist.Normal(drift * state, 0.5))
            numpyro.sample("y", dist.Normal(state, 0.1), obs=y)
            return state, state

        scan(step, jnp.zeros(()), y)

    def fn(drift, z, y):
        return log_density(model, (y,), {}, {"drift": drift, "z": z})[0]

    return fn, (np.float32(0.4), HEIGHTS * 0.9, HEIGHTS)


@program("numpyro", wrt=())
def numpyro_predictive_of_many_distributions():
    import numpyro.distributions as dist

    def fn(key, rate):
        keys = jax.random.split(key, 8)
        return [
            dist.Gamma(rate, 2.0).sample(keys[0], (3,)),
            dist.Poisson(rate).sample(keys[1], (3,)),
            dist.Dirichlet(jnp.stack([rate, rate, rate])).sample(keys[2], (2,)),
            dist.Categorical(logits=jnp.stack([rate, -rate])).sample(keys[3], (5,)),
            dist.LKJCholesky(3, rate).sample(keys[4]),
            dist.VonMises(0.0, rate).sample(keys[5], (3,)),
            dist.Binomial(5, jax.nn.sigmoid(rate)).sample(keys[6], (3,)),
            dist.TruncatedNormal(rate, low=0.0).sample(keys[7], (3,)),
        ]

    return fn, (jax.random.key(0), np.float32(1.3))


@program("numpyro", rtol=1e-3)
def numpyro_gaussian_process():
    import numpyro.distributions as dist

    def fn(params, x, y):
        gap = (x[:, None] - x[None]) / jnp.exp(params["length"])
        kernel = jnp.exp(-0.5 * gap**2) + 0.1 * jnp.eye(x.shape[0])
        return dist.MultivariateNormal(params["mean"], covariance_matrix=kernel).log_prob(y)

    return fn, ({"length": np.float32(-0.5), "mean": np.float32(0.2)}, POINTS, HEIGHTS)


# -- blackjax ------------------------------------------------------------------------------------


def log_density(position):
    x, y = position["x"], position["y"]
    return -0.5 * (x**2).sum() - 2.0 * ((y - x**2) ** 2).sum()


START = {"x": np.ones(2, "float32"), "y": np.zeros(2, "float32")}


def chain(kernel, state, key, length=5):
    def step(state, key):
        state, info = kernel.step(key, state)
        return state, (state.position, getattr(info, "acceptance_rate", 0.0))

    return jax.lax.scan(step, state, jax.random.split(key, length))[1]


@program("blackjax", wrt=())
def blackjax_nuts():
    import blackjax

    def fn(key, start):
        kernel = blackjax.nuts(log_density, step_size=0.2, inverse_mass_matrix=jnp.ones(4))
        return chain(kernel, kernel.init(start), key)

    return fn, (jax.random.key(0), START)


@program("blackjax", wrt=())
def blackjax_window_adaptation():
    import blackjax

    def fn(key, start):
        adapted = blackjax.window_adaptation(blackjax.hmc, log_density, num_integration_steps=3)
        (state, parameters), _ = adapted.run(key, start, num_steps=20)
        return state.position, parameters["step_size"], parameters["inverse_mass_matrix"]

    return fn, (jax.random.key(1), START)


@program("blackjax", wrt=())
def blackjax_mala_and_random_walk():
    import blackjax

    def fn(key, start):
        mala = blackjax.mala(log_density, 0.1)
        walk = blackjax.additive_step_random_walk(
            log_density, blackjax.mcmc.random_walk.normal(jnp.full((4,), 0.2))
        )
        return chain(mala, mala.init(start), key), chain(walk, walk.init(start), key)

    return fn, (jax.random.key(2), START)


@program("blackjax", wrt=())
def blackjax_tempered_smc():
    import blackjax
    from blackjax.smc import resampling

    def fn(key, particles):
        smc = blackjax.tempered_smc(
            lambda x: -0.5 * jnp.sum(x**2), lambda x: -jnp.sum((x - 1.0) ** 2),
            blackjax.hmc.build_kernel(), blackjax.hmc.init,
            {"step_size": jnp.full((1,), 0.1), "inverse_mass_matrix": jnp.ones((1, 2)),
             "num_integration_steps": jnp.full((1,), 3)},
            resampling.systematic, num_mcmc_steps=2,
        )  # fmt: skip
        state = smc.init(particles)
        for i, t in enumerate((0.3, 1.0)):
            state, _ = smc.step(jax.random.fold_in(key, i), state, t)
        return state.particles, state.weights

    particles = np.random.default_rng(0).normal(size=(6, 2)).astype("float32")
    return fn, (jax.random.key(3), particles)


@program("blackjax", wrt=())
def blackjax_variational_and_sgld():
    import blackjax

    def fn(key, start):
        method = blackjax.meanfield_vi(log_density, optax.adam(1e-2), 4)
        state = method.init(start)
        state, info = jax.lax.scan(lambda s, k: method.step(k, s), state, jax.random.split(key, 3))
        sgld = blackjax.sgld(lambda p, batch: jax.grad(log_density)(p))
        position = sgld.init(start)
        for each in jax.random.split(key, 3):
            position = sgld.step(each, position, jnp.zeros(2), 1e-2)
        return state.mu, info.elbo, position

    return fn, (jax.random.key(4), START)


# -- distrax -------------------------------------------------------------------------------------


def spline_flow(params):
    import distrax

    layer = distrax.Chain([
        distrax.RationalQuadraticSpline(params["spline"], -3.0, 3.0),
        distrax.ScalarAffine(params["shift"], jnp.exp(params["scale"])),
        distrax.Inverse(distrax.Tanh()),
    ])  # fmt: skip
    return distrax.Transformed(distrax.Normal(0.0, 1.0), layer)


@program("distrax")
def distrax_spline_flow():
    rng = np.random.default_rng(0)
    params = {
        "spline": rng.normal(size=(13,)).astype("float32"),
        "shift": np.float32(0.1),
        "scale": np.float32(-0.2),
    }
    return lambda p, x: spline_flow(p).log_prob(x), (params, POINTS * 0.8)


@program("distrax", wrt=(1,))
def distrax_coupling_sampled():
    import distrax

    def fn(key, weights):
        mask = jnp.arange(4) % 2 == 0

        def bijector(params):
            return distrax.ScalarAffine(params[..., 0], jnp.exp(params[..., 1]))

        def conditioner(x):
            return jnp.tanh(x @ weights).reshape(*x.shape, 2)

        flow = distrax.MaskedCoupling(mask, conditioner, bijector)
        base = distrax.Independent(distrax.Normal(jnp.zeros(4), jnp.ones(4)), 1)
        joined = distrax.Transformed(base, distrax.Block(flow, 0))
        return joined.sample_and_log_prob(seed=key, sample_shape=(3,))

    weights = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    return fn, (jax.random.key(0), weights)


@program("distrax")
def distrax_mixture_and_markov_model():
    import distrax

    def fn(params, x):
        mixture = distrax.MixtureSameFamily(
            distrax.Categorical(logits=params["mix"]), distrax.Normal(params["mean"], 0.5)
        )
        model = distrax.HMM(
            distrax.Categorical(logits=params["mix"]),
            distrax.Categorical(logits=jnp.outer(params["mix"], params["mean"])),
            distrax.Normal(params["mean"], 0.5),
        )
        divergence = distrax.Categorical(logits=params["mix"]).kl_divergence(
            distrax.Categorical(logits=params["mean"])
        )
        return mixture.log_prob(x), model.forward_backward(x)[2], divergence

    params = {"mix": np.array([0.1, 0.4, -0.3], "float32"), "mean": POINTS[:3]}
    return fn, (params, HEIGHTS)


@program("distrax", wrt=())
def distrax_viterbi():
    import distrax

    def fn(mean, x):
        model = distrax.HMM(
            distrax.Categorical(logits=jnp.zeros(3)),
            distrax.Categorical(logits=jnp.eye(3)),
            distrax.Normal(mean, 0.5),
        )
        return model.viterbi(x)

    return fn, (POINTS[:3], HEIGHTS)


# -- evosax --------------------------------------------------------------------------------------


def sphere(population):
    return jnp.sum(population**2 - jnp.cos(4 * population), -1)


def evolve(name, start):
    from evosax.algorithms import algorithms

    strategy = algorithms[name](population_size=6, solution=start)
    return functools.partial(_generations, strategy, strategy.default_params)


def _generations(strategy, params, key, start):
    state = strategy.init(key, start, params)

    def step(state, key):
        ask, tell = jax.random.split(key)
        population, state = strategy.ask(ask, state, params)
        fitness = jax.vmap(sphere)(population)
        state, metrics = strategy.tell(tell, population, fitness, state, params)
        return state, metrics["best_fitness"]

    state, best = jax.lax.scan(step, state, jax.random.split(key, 3))
    return strategy.get_mean(state), best


@program("evosax", wrt=())
def evosax_cma_es():
    start = np.zeros(3, "float32")
    return evolve("CMA_ES", start), (jax.random.key(0), start)


@program("evosax", wrt=())
def evosax_open_es():
    start = np.zeros(3, "float32")
    return evolve("Open_ES", start), (jax.random.key(0), start)


@program("evosax", wrt=())
def evosax_snes():
    start = np.zeros(3, "float32")
    return evolve("SNES", start), (jax.random.key(0), start)


@program("evosax", wrt=())
def evosax_genetic():
    from evosax.algorithms import algorithms

    start = np.zeros(3, "float32")
    population = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    strategy = algorithms["DifferentialEvolution"](population_size=6, solution=start)
    params = strategy.default_params

    def fn(key, population):
        fitness = jax.vmap(sphere)(population)
        state = strategy.init(key, population, fitness, params)
        for each in jax.random.split(key, 2):
            asked, state = strategy.ask(each, state, params)
            state, _ = strategy.tell(each, asked, jax.vmap(sphere)(asked), state, params)
        return asked

    return fn, (jax.random.key(0), population)
