"""`prefetch`: a thread prepares batches and sends them to the device while earlier steps run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, Self, TypeAlias
from weakref import finalize

import jax

from graphc.closing import Closing
from graphc.copying import Uncopied
from graphc.data.pump import Pump, close
from graphc.devices.discovery import find_devices, no_such_device
from graphc.errors import AttributeValueError, DTypeError, FeedError, GraphcError, StateError
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
    _check_iterable(batches)
    place, count = checked_place(to, size, steps)
    return Prefetch(batches, place, count, steps)


def checked_place(
    to: Destination | None, size: int, steps: int | None
) -> tuple[Callable[[Any], Any], int]:
    """The function that copies a batch, or a group of `steps` batches; and the size as an int.

    Raises:
        AttributeValueError, DeviceError: see `prefetch`.
    """
    count = checked_count(size, "prefetch: size")
    if steps is None:
        return _placer(to), count
    n = checked_count(steps, "prefetch: steps")
    if not isinstance(to, Session):
        raise AttributeValueError.here(
            f"prefetch: steps are stacked for a session, got to={to!r}",
            hint="prefetch(batches, session, steps=n), or stack the arrays yourself",
        )
    session = to
    return lambda group: session.put(group, steps=n), count


class Prefetch(Iterator[Any], Closing, Uncopied):
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
        steps: int | None = None,
    ) -> None:
        self._options = place, size, steps, current_source()
        self._items = _resumable(batches)
        self._after: Any = None if self._items is None else self._items.state()
        self._start(batches if self._items is None else self._items)

    def _start(self, batches: Iterable[Any]) -> None:
        FORKING.use_devices()
        place, size, steps, made_at = self._options

        def make(pair: Any, number: int) -> Any:
            batch, after = pair
            try:
                return place(batch), after
            except GraphcError as error:
                told_more(error, number, made_at)
                raise

        # The thread refers to the pump only, so this object can be garbage-collected.
        self._pump = Pump(
            _positions(batches, self._items is not None, steps), make, size, own_settings()
        )
        self._stop = finalize(self, self._pump.stop)
        self._stop.atexit = False  # the pump itself handles the end of the process

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch, self._after = self._pump.take()
        return batch

    def state(self) -> dict[str, object]:
        """The position of the source after the batches that `next` has returned.

        For sources whose iterators have `state` and `restore`, such as `gc.data.Pipeline` and
        `gc.data.Batches`.

        Raises:
            StateError: the source has no positions.

        Examples:
            >>> batches = gc.data.Batches({"x": np.arange(6)}, 2)
            >>> with gc.data.prefetch(batches) as stream:
            ...     batch, position = next(stream), stream.state()
            >>> position["next"]
            2
        """
        if self._items is None:
            raise self._no_position()
        found: dict[str, object] = self._after
        return found

    def restore(self, tree: Mapping[str, object]) -> None:
        """Goes to a position of the source. Batches that have been read ahead are discarded.

        Raises:
            StateError: the source has no positions, or does not stop reading.

        Examples:
            >>> batches = gc.data.Batches({"x": np.arange(6)}, 2)
            >>> with gc.data.prefetch(batches) as stream:
            ...     start, first = stream.state(), next(stream)
            ...     stream.restore(start)
            ...     bool((next(stream)["x"] == first["x"]).all())
            True
        """
        if self._items is None:
            raise self._no_position()
        self._stop()
        if not self._pump.join():
            raise StateError.here(
                "prefetch: its thread still waits for the next batch of the source",
                hint="restore a new iterator of the source, and prefetch that",
            )
        self._items.restore(tree)
        self._after = self._items.state()
        self._start(self._items)

    def _no_position(self) -> StateError:
        return StateError.here(
            "prefetch: the batches come from an iterable without positions",
            hint="make them by a gc.data.Pipeline or gc.data.Batches, or give the iterator the "
            "methods state() and restore(tree)",
        )

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


def _check_iterable(batches: Any) -> None:
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        raise FeedError.here(
            f"prefetch: batches must be an iterable of batches, got {type(batches).__name__}",
            hint="pass a list of them, a generator, or a gc.data.Batches",
        )


def told_more(error: GraphcError, number: int, made_at: Source | None) -> None:
    """Adds the number of the batch to an error of the thread, and the line of `prefetch` if the
    error has no other line."""
    error.details = (*error.details, f"batch {number} of prefetch")
    if error.source is None or getattr(error.source, "file", None) == threading.__file__:
        error.source = made_at


class _Resumable(Protocol):
    """An iterator with a position."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def state(self) -> Any: ...

    def restore(self, tree: Any) -> None: ...


def _resumable(batches: Any) -> _Resumable | None:
    """The iterator of a source whose iterators have positions."""
    items = batches
    if not isinstance(batches, Iterator):
        if not hasattr(batches, "has_positions"):  # its iterator is made by the thread
            return None
        items = iter(batches)
    has_both = all(callable(getattr(items, name, None)) for name in ("state", "restore"))
    return items if has_both else None


def _positions(
    batches: Iterable[Any], resumable: bool, steps: int | None
) -> Iterator[tuple[Any, Any]]:
    """The batches, or lists of `steps` of them, with the positions after them."""
    source: Any = iter(batches)
    n = steps or 1
    try:
        while len(group := list(islice(source, n))) == n:
            after = source.state() if resumable else None
            yield (group[0] if steps is None else group), after
            del group
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
        raise AttributeValueError.here(
            f"prefetch: takes a session, an executable or a device to copy to, got {to!r}",
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
    """A leaf as an array that is never modified; None if a device cannot hold it."""
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
