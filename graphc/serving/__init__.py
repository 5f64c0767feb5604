"""The model server: TensorFlow Serving's protocols for artifacts of graphc.

`graphc serve model.gcx` on the command line, `Server` in Python, `asgi` inside another service.
The extra `serve` holds what it needs: `pip install 'graphc[serve]'`.
"""

import typing

from graphc.ir.namespaces import namespace as _namespace
from graphc.serving.client import AsyncClient as AsyncClient
from graphc.serving.client import Client as Client
from graphc.serving.client_sessions import AsyncModelSession as AsyncModelSession
from graphc.serving.client_sessions import ModelSession as ModelSession
from graphc.serving.config import All as All
from graphc.serving.config import BatchingConfig as BatchingConfig
from graphc.serving.config import Latest as Latest
from graphc.serving.config import ModelConfig as ModelConfig
from graphc.serving.config import ServerConfig as ServerConfig
from graphc.serving.config import SessionConfig as SessionConfig
from graphc.serving.config import Specific as Specific
from graphc.serving.config import TlsConfig as TlsConfig
from graphc.serving.models.manager import Manager as Manager
from graphc.serving.server import Server as Server
from graphc.serving.server import asgi as asgi
from graphc.web.failures import Failure as Failure

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.serving", globals())
