"""`Pipeline`: a source and stages, as a value that can be iterated over any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from graphc.data.bucketing import Bucketing
from graphc.data.core.checks import check_callable, check_count
from graphc.data.core.cursor import Record
from graphc.data.core.node import Node
from graphc.data.iterator import PipelineIterator
from graphc.data.prefetching import Destination, checked_place
from graphc.data.stages.ahead import Ahead
from graphc.data.stages.arguments import Opened, bucket_node, pad_node
from graphc.data.stages.batch import Batch
from graphc.data.stages.interleave import Interleave
from graphc.data.stages.mapping import Call, Filter, Map
from graphc.data.stages.parallel import Workers, name_of
from graphc.data.stages.select import Repeat, Shard, Skip, Take
from graphc.data.stages.shuffle import Shuffle
from graphc.data.workers.processes import pickled
from graphc.errors import AttributeValueError
from graphc.ir.calls import explain_methods
from graphc.ir.members import Helpful
from graphc.ir.source import current_source
from graphc.typing import Fetches


class Pipeline(Helpful):
    """Records from a source, and stages that they pass through.

    `gc.data.from_arrays` and the other `from_` functions make one. Each method returns a new
    pipeline with one more stage. Nothing is read before iteration. A pipeline may be iterated over
    any number of times: `iter(pipeline)` always begins at the first epoch. Its iterator has `state`
    and `restore`: see `gc.data.PipelineIterator`.

    Examples:
        >>> x, y = np.arange(10), np.arange(10) % 2
        >>> pipeline = gc.data.from_arrays({"x": x, "y": y}).shuffle(seed=0).batch(4)
        >>> [batch["x"].shape for batch in pipeline]
        [(4,), (4,), (2,)]
        >>> pipeline
        <Pipeline from_arrays: 10 records . shuffle(seed=0) . batch(4)>
    """

    has_positions = True  # its iterators have `state` and `restore`

    def __init__(self, node: Node) -> None:
        if not isinstance(node, Node):
            raise AttributeValueError.here(
                f"Pipeline: {type(node).__name__} is not a source of a pipeline",
                hint="gc.data.from_arrays({'x': x}) and the other from_ functions make one",
            )
        self._node = node

    def __iter__(self) -> PipelineIterator:
        return PipelineIterator(self._node)

    def epoch(self, number: int) -> PipelineIterator:
        """An iterator over one epoch, shuffled as in that epoch of `repeat`.

        `gc.train.fit(epochs=...)` uses it. A position of the iterator belongs to the same epoch.

        Args:
            number: the epoch, counted from 0; `iter(pipeline)` is epoch 0.

        Raises:
            AttributeValueError: `number` is not an int of at least 0.

        Examples:
            >>> numbers = gc.data.from_arrays(np.arange(4)).shuffle(seed=1)
            >>> two = [*numbers.epoch(0), *numbers.epoch(1)]
            >>> two == list(numbers.repeat(2))
            True
        """
        check_count("epoch: number", number, 0)
        return PipelineIterator(self._node, number)

    def __repr__(self) -> str:
        return f"<Pipeline {' . '.join(self._node.labels())}>"

    @property
    def count(self) -> int | None:
        """The number of items; None if it is not known or has no limit.

        Examples:
            >>> gc.data.from_arrays(np.arange(10)).batch(4).count
            3
        """
        return self._node.count

    def shuffle(self, buffer: int | None = None, *, seed: int = 0) -> Pipeline:
        """The items in random order. Each epoch of a later `repeat` has another order.

        Directly after a source with random access (arrays, images, record files with an index),
        numbers are shuffled, and not records.

        Args:
            buffer: how many items to choose the next one from. None: all items of the epoch, which
                are read at its beginning if the source has no random access.
            seed: the same seed gives the same order in the same epoch.

        Examples:
            >>> sorted(gc.data.from_arrays(np.array([3, 1, 2])).shuffle(seed=5))
            [np.int64(1), np.int64(2), np.int64(3)]
        """
        if buffer is not None:
            check_count("shuffle: buffer", buffer, 1)
        elif self._node.endless:
            raise AttributeValueError.here(
                "shuffle: the pipeline has no end, so its items cannot all be read",
                hint="shuffle before repeat(), or with a buffer: .shuffle(10_000)",
            )
        check_count("shuffle: seed", seed, 0)
        return Pipeline(Shuffle(current_source(), self._node, buffer, seed))

    def batch(self, size: int, *, drop_remainder: bool = False) -> Pipeline:
        """Stacks records: a nest (lists, tuples, dicts) of arrays with one more axis, in front.

        Texts, bytes and None become arrays of objects. Records with arrays of different lengths
        need `.pad()` directly after `batch`, or `bucket` in its place.

        Args:
            size: records per batch.
            drop_remainder: leave out the records at the end that do not fill a batch.

        Raises:
            FeedError: from `next`: records differ in their structure or in their shapes.

        Examples:
            >>> list(gc.data.from_arrays(np.arange(5)).batch(2, drop_remainder=True))
            [array([0, 1]), array([2, 3])]
        """
        check_count("batch: size", size, 1)
        return Pipeline(Batch(current_source(), self._node, size, bool(drop_remainder)))

    def repeat(self, n: int | None = None) -> Pipeline:
        """Several epochs, one after the other. Stages before it begin anew in each epoch.

        Args:
            n: how many epochs; None for no end.

        Examples:
            >>> list(gc.data.from_arrays(np.arange(2)).repeat(2).batch(3))
            [array([0, 1, 0]), array([1])]
        """
        if n is not None:
            check_count("repeat: n", n, 0)
        return Pipeline(Repeat(current_source(), self._node, n))

    def take(self, n: int) -> Pipeline:
        """The first `n` items.

        Examples:
            >>> list(gc.data.from_arrays(np.arange(5)).take(2))
            [np.int64(0), np.int64(1)]
        """
        check_count("take: n", n, 0)
        return Pipeline(Take(current_source(), self._node, n))

    def skip(self, n: int) -> Pipeline:
        """All items but the first `n`.

        Examples:
            >>> list(gc.data.from_arrays(np.arange(5)).skip(3))
            [np.int64(3), np.int64(4)]
        """
        check_count("skip: n", n, 0)
        return Pipeline(Skip(current_source(), self._node, n))

    def shard(self, index: int | None = None, count: int | None = None) -> Pipeline:
        """Every `count`-th item: a part for one of several processes.

        Each item belongs to exactly one shard. The sizes of shards differ by at most 1. If
        `shuffle` comes before `shard`, all processes must use the same seed.

        Args:
            index: the number of this shard; `jax.process_index()` by default.
            count: the number of shards; `jax.process_count()` by default.

        Examples:
            >>> list(gc.data.from_arrays(np.arange(5)).shard(1, 2))
            [np.int64(1), np.int64(3)]
        """
        if (index is None) != (count is None):
            raise AttributeValueError.here(
                f"shard: takes both index and count or none, got {index} and {count}",
                hint=".shard(0, 4), or .shard() for the processes of jax.distributed",
            )
        own = jax.process_index() if index is None else index
        total = jax.process_count() if count is None else count
        check_count("shard: count", total, 1)
        check_count("shard: index", own, 0)
        if own >= total:
            raise AttributeValueError.here(
                f"shard: index {own} of {total} shards", hint=f"an index from 0 to {total - 1}"
            )
        return Pipeline(Shard(current_source(), self._node, own, total))

    def map(
        self,
        function: Callable[..., Record],
        *,
        workers: int = 0,
        processes: bool = False,
        seed: int | None = None,
    ) -> Pipeline:
        """The results of a function, in the order of the items.

        With processes, the function and its results are pickled. Processes are started by "spawn",
        so the function must be at the top level of a module, and a script needs
        `if __name__ == "__main__":`. If a process dies, another one computes its item again.

        Args:
            function: of an item; with `seed` also of a `np.random.Generator`.
            workers: how many threads or processes call it, up to twice as many items ahead. 0: it
                is called when the item is read. Threads help where a function releases Python's
                lock, as Pillow and NumPy do for large arrays.
            processes: workers are processes.
            seed: the generator that an item gets depends on the seed, the epoch and the number of
                the item, and not on the workers.

        Raises:
            DataError: the function cannot be pickled. From `next`: a process died repeatedly.
            Others: from `next`: the error of the function, with the item and the stage in a note.

        Examples:
            >>> numbers = gc.data.from_arrays(np.arange(3.0))
            >>> list(numbers.map(lambda x: x * x, workers=2))
            [np.float64(0.0), np.float64(1.0), np.float64(4.0)]
            >>> noisy = numbers.map(lambda x, rng: x + rng.normal(), seed=1)
            >>> list(noisy) == list(noisy)
            True
        """
        check_callable("map", function, ".map(lambda record: ...)")
        check_count("map: workers", workers, 0)
        if seed is not None:
            check_count("map: seed", seed, 0)
        if processes and not workers:
            raise AttributeValueError.here(
                "map: processes=True without workers",
                hint=".map(function, workers=2, processes=True)",
            )
        call, made_at = Call(function, seed), current_source()
        if processes:
            pickled(f"map({name_of(function)})", call, made_at)
        return Pipeline(Map(made_at, self._node, call, Workers(workers, bool(processes))))

    def filter(self, function: Callable[[Record], object]) -> Pipeline:
        """The items for which a function is true.

        Examples:
            >>> list(gc.data.from_arrays(np.arange(5)).filter(lambda x: x % 2))
            [np.int64(1), np.int64(3)]
        """
        check_callable("filter", function, ".filter(lambda record: ...)")
        return Pipeline(Filter(current_source(), self._node, function))

    def interleave(
        self, function: Callable[[Record], Pipeline], *, cycle: int = 4, block: int = 1
    ) -> Pipeline:
        """Makes a pipeline of each item, and takes items from several of these in turn.

        Args:
            function: item -> pipeline, such as `gc.data.from_text` for paths.
            cycle: how many to read at the same time. Where one ends, the next begins.
            block: how many items to take from one before the next.

        Examples:
            >>> letters = gc.data.from_iterable(["ab", "cde", "f"])
            >>> "".join(letters.interleave(lambda word: gc.data.from_iterable([*word]), cycle=2))
            'acbdfe'
        """
        check_callable("interleave", function, ".interleave(gc.data.from_text)")
        check_count("interleave: cycle", cycle, 1)
        check_count("interleave: block", block, 1)
        opened = Opened(function, current_source())
        return Pipeline(Interleave(current_source(), self._node, opened, cycle, block))

    def pad(
        self,
        to: int | Sequence[int] | Bucketing | None = None,
        *,
        multiple: int = 1,
        value: float = 0,
        keys: Sequence[str] | None = None,
        lengths: str | None = None,
        fetches: Fetches | None = None,
    ) -> Pipeline:
        """Pads the rows of each batch to one length, along their first axis.

        It comes directly after `batch` or `bucket`.

        Args:
            to: the length; or several, of which the smallest that fits is taken; or a
                `gc.Bucketing`, which also feeds its masks. None: the longest row of the batch.
            multiple: round the length up to a multiple of this.
            value: the value of the padding.
            keys: which arrays of a dict; by default all whose rows have an axis.
            lengths: add the lengths of the rows under this key, int32 [batch].
            fetches: with a Bucketing: what is fetched, which decides on the masks.

        Raises:
            FeedError: from `next`: a row is longer than the greatest length, or the items have no
                rows to pad.

        Examples:
            >>> words = gc.data.from_iterable([np.array([3, 1, 4]), np.array([1])])
            >>> next(iter(words.batch(2).pad(multiple=4)))
            array([[3, 1, 4, 0], [1, 0, 0, 0]])
        """
        return Pipeline(pad_node(self._node, to, multiple, value, keys, lengths, fetches))

    def bucket(
        self,
        bounds: Sequence[int] | Bucketing,
        size: int | Sequence[int],
        *,
        length: str | Callable[[Record], int],
        axis: str = "time",
        drop_remainder: bool = False,
    ) -> Pipeline:
        """Batches of records that are about as long as each other.

        Each record goes to the first bucket that holds it. A full bucket is a batch, whose arrays
        are lists of rows: use `pad` next, or feed them to `gc.Bucketing.run`.

        Args:
            bounds: the greatest length of each bucket; or a `gc.Bucketing`, whose sizes of `axis`
                these are.
            size: records per batch; or one number for each bucket.
            length: a function of a record; or the key of the array whose length counts.
            axis: the name of a size of the Bucketing.
            drop_remainder: leave out the batches at the end that are not full.

        Raises:
            FeedError: from `next`: a record is too long for every bucket.

        Examples:
            >>> words = gc.data.from_iterable([np.ones(n) for n in (1, 5, 2, 6)])
            >>> batches = words.bucket([4, 8], 2, length=len).pad([4, 8])
            >>> [batch.shape for batch in batches]
            [(2, 4), (2, 8)]
        """
        return Pipeline(bucket_node(self._node, bounds, size, length, axis, bool(drop_remainder)))

    def prefetch(
        self, to: Destination | None = None, *, size: int = 2, steps: int | None = None
    ) -> Pipeline:
        """Reads ahead in a thread, and copies to the device: see `gc.data.prefetch`.

        The position of the iterator is that of the items which `next` returned.

        Args:
            to: the session or executable that will be fed, a device, its name or a sharding. None:
                JAX's default device.
            size: how many items to read ahead.
            steps: stacks this many batches, for `session.run_steps`. With a session only.

        Examples:
            >>> x = gc.placeholder((2,), name="x")
            >>> session = gc.Session(graph)
            >>> numbers = gc.data.from_arrays({"x": np.ones(4, "f4")}).batch(2).prefetch(session)
            >>> [session.run(x * 2, feeds).tolist() for feeds in numbers]
            [[2.0, 2.0], [2.0, 2.0]]
        """
        place, checked = checked_place(to, size, steps)
        return Pipeline(Ahead(current_source(), self._node, place, checked, steps))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes of `gc.data.from_images`; empty for other sources.

        Examples:
            >>> gc.data.from_arrays(np.arange(3)).classes
            ()
        """
        return tuple(getattr(self._node.indexed, "classes", ()))


explain_methods(Pipeline)
