"""Build functions of the tests, in a module that other processes can import by its path."""

import graphc as gc


def small(x, outputs, width=8):
    hidden = gc.nn.Dense(width, activation=gc.nn.relu, name="hidden")(x)
    return gc.nn.Dense(outputs, name="out")(hidden)
