"""Compilation and execution: executables, sessions, state."""

from graphc.runtime.freezing.freezing import freeze as freeze
from graphc.runtime.session import Session as Session
from graphc.runtime.state.state import State as State
from graphc.runtime.step.compiler import compile as compile
from graphc.runtime.step.compiler import compile_async as compile_async
from graphc.runtime.step.executable import Executable as Executable
from graphc.runtime.step.function import to_jax as to_jax
from graphc.runtime.tuning.tuning import tune as tune
