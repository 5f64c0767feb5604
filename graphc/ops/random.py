"""`gc.random`: random numbers, drawn anew in every run, and keys."""

from graphc.ops.draws.categorical import categorical as categorical
from graphc.ops.draws.categorical import choice as choice
from graphc.ops.draws.categorical import permutation as permutation
from graphc.ops.draws.categorical import shuffle as shuffle
from graphc.ops.draws.counts import binomial as binomial
from graphc.ops.draws.counts import geometric as geometric
from graphc.ops.draws.counts import multinomial as multinomial
from graphc.ops.draws.counts import rademacher as rademacher
from graphc.ops.draws.distributions import beta as beta
from graphc.ops.draws.distributions import cauchy as cauchy
from graphc.ops.draws.distributions import chisquare as chisquare
from graphc.ops.draws.distributions import dirichlet as dirichlet
from graphc.ops.draws.distributions import exponential as exponential
from graphc.ops.draws.distributions import gamma as gamma
from graphc.ops.draws.distributions import gumbel as gumbel
from graphc.ops.draws.distributions import laplace as laplace
from graphc.ops.draws.distributions import logistic as logistic
from graphc.ops.draws.distributions import lognormal as lognormal
from graphc.ops.draws.distributions import multivariate_normal as multivariate_normal
from graphc.ops.draws.distributions import poisson as poisson
from graphc.ops.draws.distributions import randint as randint
from graphc.ops.draws.distributions import student_t as student_t
from graphc.ops.draws.random_draws import bernoulli as bernoulli
from graphc.ops.draws.random_draws import dropout as dropout
from graphc.ops.draws.random_draws import normal as normal
from graphc.ops.draws.random_draws import truncated_normal as truncated_normal
from graphc.ops.draws.random_draws import uniform as uniform
from graphc.ops.draws.random_keys import fold_in as fold_in
from graphc.ops.draws.random_keys import random_bits as bits
from graphc.ops.draws.random_keys import random_key as random_key
from graphc.ops.draws.random_keys import split_key as split
from graphc.ops.draws.transformed_draws import ball as ball
from graphc.ops.draws.transformed_draws import f as f
from graphc.ops.draws.transformed_draws import generalized_normal as generalized_normal
from graphc.ops.draws.transformed_draws import maxwell as maxwell
from graphc.ops.draws.transformed_draws import orthogonal as orthogonal
from graphc.ops.draws.transformed_draws import pareto as pareto
from graphc.ops.draws.transformed_draws import rayleigh as rayleigh
from graphc.ops.draws.transformed_draws import triangular as triangular
from graphc.ops.draws.transformed_draws import wald as wald
from graphc.ops.draws.transformed_draws import weibull as weibull

__all__ = [
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "dropout",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "random_key",
    "rayleigh",
    "shuffle",
    "split",
    "student_t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull",
]
