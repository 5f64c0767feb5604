"""Initial values for variables: `gc.nn.initializers.HeNormal()`."""

from graphc.build.initializers import (
    INITIALIZERS,
    Constant,
    ForgetGateOnes,
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    Identity,
    LecunNormal,
    Normal,
    Ones,
    Orthogonal,
    TruncatedNormal,
    Uniform,
    Zeros,
    fans,
)

__all__ = [
    "INITIALIZERS",
    "Constant",
    "ForgetGateOnes",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "LecunNormal",
    "Normal",
    "Ones",
    "Orthogonal",
    "TruncatedNormal",
    "Uniform",
    "Zeros",
    "fans",
]
