"""`Server`: REST and gRPC side by side in one event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from graphc.devices.strategy import resolve_devices
from graphc.errors import GraphcError, MissingExtraError
from graphc.serving.config import ModelConfig, ServerConfig
from graphc.serving.config_checks import MAX_BODY_BYTES
from graphc.serving.endpoints.access_log import AccessLog
from graphc.serving.endpoints.cors import Cors
from graphc.serving.endpoints.grpc_services import GrpcServices, options_of
from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.rest import RestApplication
from graphc.serving.endpoints.service import Manager as AnyManager
from graphc.serving.endpoints.service import Service
from graphc.serving.endpoints.status_page import StatusPage
from graphc.serving.endpoints.tls import bind_grpc, tls_files
from graphc.serving.models.manager import Manager
from graphc.web.access import Access
from graphc.web.connections import http_server, listen
from graphc.web.failures import Failure

_LOG = logging.getLogger("graphc.serving")


class Server:
    """A model server: TensorFlow Serving's REST and gRPC protocols for artifacts of graphc.

    `with Server(config) as server:` serves in the background, from when all models are loaded.
    `Server(config).run()` serves in this thread until SIGTERM or Ctrl-C; it then refuses new
    requests, and finishes those in progress.

    Args:
        config: what is served, and where.
        manager: the models; by default a Manager of those in `config`.
        watch: reads the configuration of the models again; see `watch_seconds`.
        watch_seconds: the time between two calls of `watch`. A new configuration is loaded.

    Attributes:
        rest_port: the port of the REST endpoint, once it listens.
        port: the port of the gRPC endpoint, once it listens.
        metrics: the counters of this server.

    Raises:
        DeviceError: a device of the configuration does not exist.
        MissingExtraError: the extra `serve` is not installed.

    Examples:
        >>> import tempfile
        >>> x = gc.placeholder(("batch",), name="x")
        >>> double = gc.Signature({"x": x}, {"y": 2.0 * x})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/model.gcx"
        ...     gc.save(gc.Session(graph), path, signatures={"predict": double}, platforms=["cpu"])
        ...     model = gc.serving.ModelConfig("double", path)
        ...     config = gc.serving.ServerConfig((model,), port=None, rest_port=0)
        ...     with gc.serving.Server(config) as server:
        ...         with gc.serving.Client(f"http://127.0.0.1:{server.rest_port}") as client:
        ...             y = client.predict("double", x=np.float32([1, 2]))["y"]
        >>> y
        array([2., 4.], dtype=float32)
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        manager: AnyManager | None = None,
        watch: Callable[[], Sequence[ModelConfig] | None] | None = None,
        watch_seconds: float = 0.0,
    ) -> None:
        _check_extra(config)
        self.config = config
        self.metrics = Metrics()
        self.rest_port: int | None = None
        self.port: int | None = None
        self._given = manager
        self._manager: Any = manager or _manager(config, self.metrics)
        self._watch = watch if watch_seconds else None
        self._watch_seconds = watch_seconds
        self._started = self._was_ready = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._background: _Background | None = None

    # -- use ------------------------------------------------------------------------------------

    def run(self, started: Callable[[], None] | None = None) -> None:
        """Serves until SIGTERM or SIGINT.

        Args:
            started: called when the models are loaded.

        Raises:
            OSError: a port is in use.
        """
        asyncio.run(self.serve(signals=(signal.SIGTERM, signal.SIGINT), started=started))

    def available(self) -> dict[str, list[int]]:
        """The available versions of each model."""
        return {
            name: [row.version for row in self._manager.status(name) if row.state == "AVAILABLE"]
            for name in self._manager.names()
        }

    def __enter__(self) -> Self:
        self._background = _Background(self)
        self._background.start()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._background is not None
        self.stop()
        self._background.finish()

    def stop(self) -> None:
        """Lets the server drain and end. Any thread may call it, more than once."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests: each model has been loaded, and it does not drain.

        A model that is configured later and cannot be loaded does not change it: the others are
        served.
        """
        if not self._started or self._stop is None or self._stop.is_set():
            return False
        if not self._was_ready:
            ready = getattr(self._manager, "is_ready", None)
            self._was_ready = ready is None or bool(ready())
        return self._was_ready

    # -- the life of the server -----------------------------------------------------------------

    async def serve(
        self, *, signals: Sequence[int] = (), started: Callable[[], None] | None = None
    ) -> None:
        """Serves in the running event loop until `stop` is called.

        The endpoints answer from the beginning; `/health/ready` says when the models are loaded.

        Args:
            signals: which also stop it.
            started: called when the models are loaded.

        Raises:
            OSError: a port is in use.
        """
        config = self.config
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for number in signals:
            self._loop.add_signal_handler(number, self._stop.set)
        log = AccessLog(config.access_log) if config.access_log is not None else None
        service = Service(
            self._manager,
            self.metrics,
            max_concurrent=config.max_concurrent,
            max_body_bytes=config.max_body_bytes,
            max_request_bytes=config.max_request_bytes,
            request_seconds=config.request_seconds,
            log=log,
            roots=_roots(config),
            direct=config.batching is None and self._given is None,
        )
        ends: list[Callable[[], Any]] = []
        try:
            if config.rest_port is not None:
                ends.append(self._start_rest(service))
            if config.port is not None:
                ends.append(await self._start_grpc(service))
            if await self._load():
                if started is not None:
                    started()
                await self._until_stopped()
        finally:
            self._started = False
            service.draining = True
            latest = time.monotonic() + config.drain_seconds
            await asyncio.gather(*(end() for end in ends))
            if self._given is None:
                left = max(0.0, latest - time.monotonic())
                await asyncio.to_thread(self._manager.close, left)
            if log is not None:
                log.close()

    async def _load(self) -> bool:
        """Loads the models. Returns False if the server is stopped meanwhile."""
        assert self._stop is not None
        if self._given is None:
            loading = asyncio.create_task(asyncio.to_thread(self._manager.start))
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not loading.done():
                return False  # closing the manager ends it, after the version that it loads
            await loading
        self._started = True
        return True

    async def _until_stopped(self) -> None:
        assert self._stop is not None
        seconds = self._watch_seconds if self._watch is not None else None
        while not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), seconds)
            except TimeoutError:
                await asyncio.to_thread(self._look)

    def _look(self) -> None:
        """Reads the configuration again."""
        assert self._watch is not None
        try:
            models = self._watch()
            if models is not None:
                self._manager.reload(models, False)
        except (GraphcError, Failure, OSError) as error:
            _LOG.error("the configuration of the models was not read: %s", error)
        except Exception:
            _LOG.exception("the configuration of the models was not read")

    def _start_rest(self, service: Service) -> Callable[[], Any]:
        config = self.config
        application: Any = RestApplication(
            service,
            access=Access(config.tokens),
            ready=lambda: self.is_ready,
            max_body_bytes=config.max_body_bytes,
            metrics_path=config.metrics_path,
        )
        if config.status_page:
            application = StatusPage(
                application, service, Access(config.tokens), lambda: self.is_ready
            )
        if config.cors_origins:
            application = Cors(application, config.cors_origins)
        server = http_server(
            application,
            head_seconds=config.request_seconds,
            drain_seconds=config.drain_seconds,
            tls=tls_files(config),
        )
        found = listen(config.host, config.rest_port or 0, config.request_seconds)
        self.rest_port = found.getsockname()[1]
        assert self._loop is not None
        task = self._loop.create_task(server.serve(sockets=[found]))

        async def end() -> None:
            server.should_exit = True
            await task

        return end

    async def _start_grpc(self, service: Service) -> Callable[[], Any]:
        import grpc

        config = self.config
        server = grpc.aio.server(options=options_of(config))
        services = GrpcServices(service, Access(config.tokens), lambda: self.is_ready)
        server.add_generic_rpc_handlers(services.handlers())
        self.port = bind_grpc(server, config)
        await server.start()

        async def end() -> None:
            await server.stop(config.drain_seconds)

        return end


class _Background:
    """A server in a thread of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="graphc-server", daemon=True)

    def start(self) -> None:
        """Returns when the models are loaded. An error of the start is raised here."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def finish(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(started=self._ready.set))
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()


def asgi(
    manager: AnyManager,
    *,
    metrics: Metrics | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    max_request_bytes: int | None = None,
    max_concurrent: int = 256,
    request_seconds: float = 30.0,
) -> RestApplication:
    """The REST endpoint as an ASGI application, to mount inside a user's own service.

    `/health/ready` below its path says whether the models are loaded.

    Args:
        manager: the models; the caller starts and closes it, often in the lifespan of the service.
        metrics: counts the requests.
        max_body_bytes, max_request_bytes, max_concurrent, request_seconds: as in `ServerConfig`.

    Examples:
        >>> manager = gc.serving.Manager([])
        >>> application = gc.serving.asgi(manager, max_concurrent=32)
        >>> # with Starlette: Mount("/models", application)
    """
    service = Service(
        manager,
        metrics or Metrics(),
        max_concurrent=max_concurrent,
        max_body_bytes=max_body_bytes,
        max_request_bytes=max_request_bytes,
        request_seconds=request_seconds,
    )
    ready = getattr(manager, "is_ready", lambda: True)
    return RestApplication(service, ready=ready, max_body_bytes=max_body_bytes)


def _manager(config: ServerConfig, metrics: Metrics) -> Manager:
    devices = () if config.devices is None else config.devices
    return Manager(
        config.models,
        batching=config.batching,
        observe=lambda model, signature, report: metrics.batch(
            model, signature, report.rows, report.padded_to, report.reason
        ),
        sessions=config.sessions,
        poll_seconds=config.poll_seconds,
        devices=resolve_devices(devices, "ServerConfig", "replica"),
        threads=config.threads,
        warm_up=config.warm_up,
        load_threads=config.load_threads,
        unload_threads=config.unload_threads,
        load_retries=config.load_retries,
        load_retry_seconds=config.load_retry_seconds,
    )


def _roots(config: ServerConfig) -> tuple[str, ...]:
    """The folders of the models: what a client configures must be below one of them."""
    paths = [os.path.realpath(model.base_path) for model in config.models]
    parents = [os.path.dirname(path) for path in paths]
    # All files are below the root of the file system: beside `/models` there is nothing to serve.
    return tuple(
        path if os.path.dirname(parent) == parent else parent
        for path, parent in zip(paths, parents, strict=True)
    )


def _check_extra(config: ServerConfig) -> None:
    needed = ["google.protobuf"]
    needed += ["uvicorn", "httptools"] if config.rest_port is not None else []
    needed += ["grpc"] if config.port is not None else []
    for name in needed:
        try:
            __import__(name)
        except ImportError:
            raise MissingExtraError(
                f"the model server needs {name}, which is not installed",
                hint="pip install 'graphc[serve]'",
            ) from None
