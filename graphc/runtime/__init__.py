"""Compiling and running: executables, sessions, state."""

from graphc.runtime.compiler import compile as compile
from graphc.runtime.executable import Executable as Executable
from graphc.runtime.freezing import freeze as freeze
from graphc.runtime.function import to_jax as to_jax
from graphc.runtime.session import Session as Session
from graphc.runtime.state import State as State
from graphc.runtime.tuning import tune as tune
