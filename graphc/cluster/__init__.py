"""Clusters: one program in several processes, on one machine or many.

`spec` says which processes there are, `detection` finds out which of them this one is, `joining`
connects them, and `launching` starts and supervises those of one machine. `parameter_servers` and
`remote_tasks` are processes of Ray, which carries their values. The arithmetic between other
processes is JAX's (`jax.distributed`); nothing here has a wire protocol. `scale` predicts how fast
a program would be on clusters that are not there.
"""

import typing

from graphc.cluster.joining import join as join
from graphc.cluster.launching import launch as launch
from graphc.cluster.parameter_servers.strategy import ParameterServers as ParameterServers
from graphc.cluster.remote_tasks.strategy import RemoteTasks as RemoteTasks
from graphc.cluster.scale.hardware import Hardware as Hardware
from graphc.cluster.scale.hardware import Link as Link
from graphc.cluster.scale.scaling import Scaling as Scaling
from graphc.cluster.scale.scaling import scaling as scaling
from graphc.cluster.scale.scaling import scaling_of as scaling_of
from graphc.cluster.scale.schedule import Prediction as Prediction
from graphc.cluster.scale.schedule import Split as Split
from graphc.cluster.scale.schedule import predict as predict
from graphc.cluster.scale.workload import Workload as Workload
from graphc.cluster.spec import ClusterSpec as ClusterSpec
from graphc.cluster.spec import Member as Member
from graphc.ir.namespaces import namespace as _namespace

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.cluster", globals())
