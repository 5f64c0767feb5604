"""`prefetch`: batches made and sent to the device by a thread, while the steps before them run."""

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

Destination: TypeAlias = Session | Executable | jax.Device | jax.sharding.Sharding | str


def prefetch(
    batches: Iterable[Any],
    to: Destination | None = None,
    *,
    size: int = 2,
    steps: int | None = None,
) -> Prefetch:
    """The batches of an iterable, on the device before they are asked for.

        with gc.data.prefetch(batches, session) as stream:
            for feeds in stream:
                session.run(train, feeds)

    A thread reads `batches`, converts each and starts its copy to where `to` takes it, so that
    neither costs the loop any time. At most `size` batches are read and not yet handed out,
    the one that is being made or copied included; hence also at most so many on the device.
    Arrays are copied on the host first, but for read-only ones: the source may fill one buffer
    again and again.

    Args:
        batches: for a session or an executable feeds, as `run` takes them; else any nest (lists,
            tuples, dicts) of arrays, of which what is no array, or is one of strings or objects,
            is handed on as it is. If it is a generator, the thread runs and closes it.
        to: the session or executable that will be fed: each feed goes to its device, or under
            `DataParallel` each piece to that of its replica, in the dtype of the placeholder, and
            the step copies and converts nothing. Or a device, its name ("/gpu:0") or a
            `jax.sharding.Sharding`. None: JAX's default device.
        size: how many batches, at least 1. 2 are enough where batches take about equally long.
        steps: takes so many batches at a time and stacks them, for `session.run_steps(fetches,
            feeds, steps)`; what does not fill the last of these is left out. With a session only.

    Returns:
        An iterator, which several threads may share: each batch goes to one of them. What
        `batches` or a wrong batch raises, comes from `next` after the batches before it. `close`
        it, or use it in a `with`, where it is left before its end; see `Prefetch`.

    Raises:
        AttributeValueError: `size` or `steps` is no such number, or `to` is nothing to copy to.
        DeviceError: no such device.
        FeedError: `batches` cannot be iterated over. From `next`: a batch that does not fit.

    >>> import numpy as np
    >>> [float(x.sum()) for x in prefetch(np.full(3, i, np.float32) for i in range(3))]
    [0.0, 3.0, 6.0]
    """
    count = checked_count(size, "prefetch: size")
    _check_iterable(batches)
    if steps is None:
        return Prefetch(batches, _placer(to), count)
    n = checked_count(steps, "prefetch: steps")
    if not isinstance(to, Session):
        raise AttributeValueError(
            f"prefetch: steps are stacked for a session, got to={to!r}",
            source=current_source(),
            hint="prefetch(batches, session, steps=n), or stack the arrays yourself",
        )
    return Prefetch(_in_groups(batches, n), lambda group: to.put(group, steps=n), count)


class Prefetch(Iterator[Any], Uncopied):
    """Batches on their way to the device: what `prefetch` returns.

    Its thread ends with the batches, on `close`, at the end of a `with`, when nobody has the
    iterator any more, and at the end of the process. After any of these, and after an error,
    there is nothing more to come: `next` raises StopIteration.
    """

    instead = "send the data of the batches, and prefetch it there"

    def __init__(self, batches: Iterable[Any], place: Callable[[Any], Any], size: int) -> None:
        FORKING.use_devices()
        made_at = current_source()

        def make(batch: Any, number: int) -> Any:
            try:
                return place(batch)
            except GraphcError as error:
                _tell_more(error, number, made_at)
                raise

        # The thread knows the pump and not this object, which can so be found abandoned.
        self._pump = Pump(batches, make, size, own_settings())
        self._stop = finalize(self, self._pump.stop)
        self._stop.atexit = False  # the end of the process is the pump's own affair

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._pump.take()

    def close(self) -> None:
        """Ends the thread, which closes `batches` if it is a generator, and drops the batches
        that wait.

        What is in the middle of a batch is waited for 5 seconds: if the source has not come back
        by then, there is a RuntimeWarning, and its thread, which does not keep the process
        alive, ends when it has.

        Raises:
            Others: what closing the generator raised.
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
    """Adds to an error of the thread what the user knows: the batch, and the line of `prefetch`
    if it concerns no other."""
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
    """What sends a batch where it belongs."""
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
    """A nest with its arrays on a device, 64-bit dtypes kept."""
    leaves, tree = jax.tree.flatten(nest)
    arrays = {i: array for i, leaf in enumerate(leaves) if (array := _array(leaf)) is not None}
    with jax.enable_x64(True):
        placed = jax.device_put(list(arrays.values()), where)
    for i, array in zip(arrays, placed, strict=True):
        leaves[i] = array
    return jax.tree.unflatten(tree, leaves)


def _array(leaf: Any) -> Any:
    """A leaf as an array that nobody writes to; None if a device cannot have it."""
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
