"""Clusters: one program in several processes, on one machine or many.

`spec` says which processes there are, `detection` finds out which of them this one is, `joining`
connects them, and `launching` starts and supervises those of one machine. The arithmetic between
processes is JAX's (`jax.distributed`); nothing here has a wire protocol.
"""

import typing

from graphc.cluster.joining import join as join
from graphc.cluster.launching import launch as launch
from graphc.cluster.parameter_servers.strategy import ParameterServers as ParameterServers
from graphc.cluster.spec import ClusterSpec as ClusterSpec
from graphc.cluster.spec import Member as Member
from graphc.ir.namespaces import namespace as _namespace

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.cluster", globals())
