"""`prefetch`: a thread prepares batches and sends them to the device while earlier steps run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeAlias
from weakref import finalize

import jax

from graphc.copying import Uncopied
from graphc.data.pump import Pump, close
from graphc.devices.discovery import find_devices, no_such_device
from graphc.errors import AttributeValueError, DTypeError, FeedError, GraphcError
from graphc.ir.dtypes import as_dtype
from graphc.ir.host_values import read
from graphc.ir.source import Source, current_source
from graphc.runtime.core.background import own_settings
from graphc.runtime.core.forking import FORKING
from graphc.runtime.feeds.batches import checked_count
from graphc.runtime.feeds.feed_memory import own
from graphc.runtime.session import Session
from graphc.runtime.step.executable import Executable
from graphc.typing import ArrayTree, Feeds

Destination: TypeAlias = Session | Executable | jax.Device | jax.sharding.Sharding | str


def prefetch(
    batches: Iterable[Feeds | ArrayTree],
    to: Destination | None = None,
    *,
    size: int = 2,
    steps: int | None = None,
) -> Prefetch:
    """Transfers the batches of an iterable to the device ahead of time.

        with gc.data.prefetch(batches, session) as stream:
            for feeds in stream:
                session.run(train, feeds)

    A thread reads `batches`, converts each batch, and starts its copy to the device that `to`
    gives, so that neither delays the loop. At most `size` batches are read but not yet returned,
    including the one that is being converted or copied. So at most this many are on the device.
    Arrays that are not read-only are copied on the host first, because the source may reuse one
    buffer.

    Args:
        batches: for a session or an executable feeds, as `run` takes them; otherwise any nest
            (lists, tuples, dicts) of arrays. Leaves that are not arrays, and arrays of strings or
            objects, are passed on unchanged. If it is a generator, the thread runs and closes it.
        to: the session or executable that will be fed: each feed is transferred to its device, or
            with `DataParallel` each piece to the device of its replica, in the dtype of the
            placeholder. The step then copies and converts nothing. Or a device, its name ("/gpu:0")
            or a `jax.sharding.Sharding`. None: JAX's default device.
        size: how many batches to read ahead, at least 1. 2 are enough if all batches take about the
            same time.
        steps: stacks this many batches at a time, for `session.run_steps(fetches, feeds, steps)`;
            batches that do not fill the last stack are left out. With a session only.

    Returns:
        An iterator, which several threads may share: each batch goes to one of them. Errors of
            `batches` or of an invalid batch are raised by `next`, after the earlier batches. If you
            stop before the end, `close` the iterator, or use it in a `with`; see `Prefetch`.

    Raises:
        AttributeValueError: `size` or `steps` is not a valid number, or `to` is not a valid target.
        DeviceError: there is no such device.
        FeedError: `batches` cannot be iterated over. From `next`: a batch does not match the
            placeholders.

    Examples:
        >>> batches = (np.full(3, i, np.float32) for i in range(3))
        >>> [float(x.sum()) for x in gc.data.prefetch(batches)]
        [0.0, 3.0, 6.0]
    """
    count = checked_count(size, "prefetch: size")
    _check_iterable(batches)
    if steps is not None:
        return _stacked(batches, to, count, steps)
    return Prefetch(batches, _placer(to), count)


def _stacked(batches: Iterable[Any], to: Any, size: int, steps: int) -> Prefetch:
    """Prefetches stacks of `steps` batches for a session."""
    n = checked_count(steps, "prefetch: steps")
    if not isinstance(to, Session):
        raise AttributeValueError(
            f"prefetch: steps are stacked for a session, got to={to!r}",
            source=current_source(),
            hint="prefetch(batches, session, steps=n), or stack the arrays yourself",
        )
    return Prefetch(_in_groups(batches, n), lambda group: to.put(group, steps=n), size)


class Prefetch(Iterator[Any], Uncopied):
    """An iterator over prefetched batches: the result of `prefetch`.

    Its thread ends after the last batch, on `close`, at the end of a `with`, when there are no
    references to the iterator, and at the end of the process. After any of these, and after an
    error, `next` raises StopIteration.

    Examples:
        >>> x = gc.placeholder((), name="x")
        >>> session = gc.Session(graph)
        >>> with gc.data.prefetch([{x: 1.0}, {x: 2.0}], session) as stream:
        ...     [float(session.run(x * 10.0, feeds)) for feeds in stream]
        [10.0, 20.0]
    """

    instead = "send the data of the batches, and prefetch it there"

    def __init__(
        self,
        batches: Iterable[Feeds | ArrayTree],
        place: Callable[[ArrayTree], ArrayTree],
        size: int,
    ) -> None:
        FORKING.use_devices()
        made_at = current_source()

        def make(batch: Any, number: int) -> Any:
            try:
                return place(batch)
            except GraphcError as error:
                _tell_more(error, number, made_at)
                raise

        # The thread refers to the pump only, so this object can be garbage-collected.
        self._pump = Pump(batches, make, size, own_settings())
        self._stop = finalize(self, self._pump.stop)
        self._stop.atexit = False  # the pump itself handles the end of the process

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._pump.take()

    def close(self) -> None:
        """Ends the thread, which closes `batches` if it is a generator, and discards the waiting
        batches.

        If the source is producing a batch, this waits up to 5 seconds for it. If the source has not
        returned by then, a RuntimeWarning is issued, and the thread ends when the source returns.
        The thread does not keep the process alive.

        Raises:
            Others: an error from closing the generator.

        Examples:
            >>> x = gc.placeholder((), name="x")
            >>> y, session = x * 2, gc.Session(graph)
            >>> feeds = gc.data.prefetch(({x: i} for i in range(100)), session)
            >>> session.run(y, next(iter(feeds)))
            Array(0., dtype=float32)
            >>> feeds.close()
        """
        self._stop()
        self._pump.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _check_iterable(batches: Any) -> None:
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        raise FeedError(
            f"prefetch: batches must be an iterable of batches, got {type(batches).__name__}",
            source=current_source(),
            hint="pass a list of them, a generator, or a gc.data.Batches",
        )


def _tell_more(error: GraphcError, number: int, made_at: Source | None) -> None:
    """Adds the number of the batch to an error of the thread, and the line of `prefetch` if the
    error has no other line."""
    error.details = (*error.details, f"batch {number} of prefetch")
    if error.source is None or getattr(error.source, "file", None) == threading.__file__:
        error.source = made_at


def _in_groups(batches: Iterable[Any], n: int) -> Iterator[list[Any]]:
    source = iter(batches)
    try:
        while len(group := list(islice(source, n))) == n:
            yield group
    finally:
        close(source)


def _placer(to: Destination | None) -> Callable[[Any], Any]:
    """The function that transfers a batch to its devices."""
    if isinstance(to, (Session, Executable)):
        return to.put
    if isinstance(to, str):
        devices = find_devices(to)
        if not devices:
            raise no_such_device(to)
        to = devices[0]
    if to is not None and not isinstance(to, (jax.Device, jax.sharding.Sharding)):
        raise AttributeValueError(
            f"prefetch: takes a session, an executable or a device to copy to, got {to!r}",
            source=current_source(),
            hint='prefetch(batches, session), or prefetch(batches, "/gpu:0")',
        )
    return lambda nest: _put_nest(nest, to)


def _put_nest(nest: Any, where: Any) -> Any:
    """A nest with its arrays on a device. 64-bit dtypes are preserved."""
    leaves, tree = jax.tree.flatten(nest)
    arrays = {i: array for i, leaf in enumerate(leaves) if (array := _array(leaf)) is not None}
    with jax.enable_x64(True):
        placed = jax.device_put(list(arrays.values()), where)
    for i, array in zip(arrays, placed, strict=True):
        leaves[i] = array
    return jax.tree.unflatten(tree, leaves)


def _array(leaf: Any) -> Any:
    """A leaf as an array that nobody modifies; None if a device cannot hold it."""
    if isinstance(leaf, jax.Array):
        return leaf
    if not hasattr(leaf, "__array__"):
        return None
    try:
        array = read(leaf)
    except DTypeError as error:
        raise FeedError(
            f"prefetch: {error.what}", details=error.details, hint=error.hint
        ) from error.__cause__
    try:
        as_dtype(array.dtype)
    except DTypeError:
        return None
    return own(array)
