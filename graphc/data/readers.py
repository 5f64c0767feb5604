"""`from_arrays` and the other functions that begin a pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard

from graphc.data.core.checks import check_count
from graphc.data.core.cursor import Record
from graphc.data.pipeline import Pipeline
from graphc.data.records.paths import Paths, existing_files
from graphc.data.sources import iterables
from graphc.data.sources.arrays import Arrays, Indexed
from graphc.data.sources.files import LineFile, Lines, checked_encoding
from graphc.data.sources.images import Images, checked_pixels, classes_in, import_pillow
from graphc.data.sources.records import Records
from graphc.data.sources.tables import Table, table_columns
from graphc.errors import AttributeValueError, FeedError
from graphc.ir.calls import explained
from graphc.ir.source import current_source
from graphc.typing import ArrayTree, DTypeLike


@explained
def from_arrays(arrays: ArrayTree) -> Pipeline:
    """A pipeline of the rows of arrays.

    Batches are gathered at once, without a record in between. Arrays of `np.memmap` and
    `np.load(path, mmap_mode="r")` stay in their files: only the rows of a batch are read.

    Args:
        arrays: an array, or a nest (lists, tuples, dicts) of arrays with the same leading axis.
            They are not copied, and must not change.

    Raises:
        FeedError: the arrays differ in length, or cannot be read.

    Examples:
        >>> x = np.arange(6).reshape(3, 2)
        >>> list(gc.data.from_arrays((x, np.array([7, 8, 9]))).batch(2))
        [(array([[0, 1], [2, 3]]), array([7, 8])), (array([[4, 5]]), array([9]))]
    """
    return Pipeline(Indexed(current_source(), "from_arrays", Arrays(arrays)))


@explained
def from_text(paths: Paths, *, encoding: str = "utf-8") -> Pipeline:
    """A pipeline of the lines of text files, without the ends of lines.

    Args:
        paths: a file or several, read in this order. Files whose names end in .gz, .bz2 or .xz are
            decompressed.
        encoding: of the files, as in Python's `open`.

    Raises:
        DataError: there is no such file. From `next`: it cannot be decoded; the error names the
            file and the line.

    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "words.txt")
        ...     with open(path, "w", encoding="utf-8") as file:
        ...         print("one", "two", sep="\\n", file=file)
        ...     list(gc.data.from_text(path))
        ['one', 'two']
    """
    checked_encoding("from_text", encoding)
    found = tuple(existing_files("from_text", paths))
    return Pipeline(Lines(current_source(), found, encoding))


@explained
def from_csv(
    paths: Paths,
    *,
    columns: Mapping[str, DTypeLike] | None = None,
    missing: Mapping[str, float | str] | None = None,
    header: bool | Sequence[str] = True,
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> Pipeline:
    """A pipeline of the rows of CSV files, as dicts of column names and values.

    Args:
        paths: a file or several with the same columns; see `from_text`.
        columns: the columns to read with their dtypes; "str" for text. None: all columns, with
            int64, float64 or "str" by the first 1000 rows of the first file.
        missing: the values of empty fields. Without, an empty field is NaN in a float column, "" in
            a text column, and an error in others.
        header: whether each file begins with the names; or the names. With False, the names are
            "0", "1", ...
        delimiter: between fields.
        encoding: of the files.

    Raises:
        DataError: there is no such file or column. From `next`: a row has another number of fields,
            or a field does not fit its dtype; the error names the file, the line and the column.

    Examples:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "people.csv")
        ...     with open(path, "w", encoding="utf-8") as file:
        ...         print("name,age", "Ada,36", "Alan,", sep="\\n", file=file)
        ...     rows = gc.data.from_csv(path, columns={"age": "int32"}, missing={"age": -1})
        ...     next(iter(rows.batch(2)))
        {'age': array([36, -1], dtype=int32)}
    """
    checked_encoding("from_csv", encoding)
    if type(delimiter) is not str or len(delimiter) != 1:
        raise AttributeValueError.here(
            f"from_csv: delimiter must be one character, got {delimiter!r}"
        )
    found = tuple(existing_files("from_csv", paths))
    first = LineFile(found[0], encoding, current_source())
    try:
        made, width = table_columns(first, delimiter, header, columns, dict(missing or {}))
    finally:
        first.close()
    node = Table(current_source(), found, encoding, delimiter, header is True, made, width)
    return Pipeline(node)


@explained
def from_images(
    folder: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    mode: str = "RGB",
    workers: int = 0,
    processes: bool = False,
) -> Pipeline:
    """A pipeline of the images in the subfolders of a folder: a class for each subfolder.

    Records are {"image": uint8 [height, width, channels], "label": int32}. `pipeline.classes` has
    the names of the classes. `shuffle` directly after it shuffles files, not decoded images. Needs
    Pillow (the extra `images`).

    Args:
        folder: of the subfolders.
        classes: names of subfolders, in the order of their labels; by default all, sorted.
        size: (height, width) to resize to.
        mode: the mode of Pillow to convert to: "RGB", "L", "RGBA", ...
        workers: how many threads or processes decode; see `Pipeline.map`.
        processes: workers are processes.

    Raises:
        DataError: there are no images. From `next`: a file is damaged.
        MissingExtraError: Pillow is not installed.

    Examples:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat", "dog"):
        ...         os.mkdir(os.path.join(folder, name))
        ...         Image.new("RGB", (5, 4)).save(os.path.join(folder, name, "1.png"))
        ...     images = gc.data.from_images(folder)
        ...     images.classes, next(iter(images.batch(2)))["image"].shape
        (('cat', 'dog'), (2, 4, 5, 3))
    """
    check_count("from_images: workers", workers, 0)
    import_pillow("from_images")
    checked_pixels(size, mode)
    path, made_at = os.fspath(folder), current_source()
    names = classes_in(path) if classes is None else list(classes)
    source = Images(path, names, size, mode, workers, bool(processes), made_at)
    return Pipeline(Indexed(made_at, "from_images", source))


@explained
def from_generator(function: Callable[[], Iterable[Record]] | Iterator[Record]) -> Pipeline:
    """A pipeline of what a generator function yields.

    A position is restored by passing over items, unless the iterator has methods `state()` and
    `restore(tree)`.

    Args:
        function: called for each epoch; returns an iterable. Or a generator that already runs: it
            can be read once.

    Raises:
        DataError: from `next`: a generator is read a second time.

    Examples:
        >>> def squares():
        ...     for i in range(3):
        ...         yield i * i
        >>> list(gc.data.from_generator(squares).repeat(2))
        [0, 1, 4, 0, 1, 4]
    """
    if isinstance(function, Iterator):
        return _once("from_generator", function, iterables.same)
    if not callable(function):
        raise FeedError.here(
            f"from_generator: takes a generator function, got {type(function).__name__}",
            hint="gc.data.from_iterable takes lists and other iterables",
        )
    made_at = current_source()
    node = iterables.Iterating(made_at, "from_generator", function, None, iterables.same)
    return Pipeline(node)


@explained
def from_iterable(items: Iterable[Record]) -> Pipeline:
    """A pipeline of the items of an iterable: lists, and loaders of other libraries.

    Takes a `DataLoader` or `Dataset` of PyTorch, a `tf.data.Dataset`, a Hugging Face dataset and
    those of Grain, without importing these libraries. Their tensors become arrays of NumPy, and so
    do lists of numbers. What has `len` and `[]` is read in any order.

    Args:
        items: an iterable. It is iterated over anew in each epoch; an iterator is read once.

    Raises:
        FeedError: it is not iterable.

    Examples:
        >>> list(gc.data.from_iterable([{"x": [1, 2]}, {"x": [3, 4]}]).batch(2))
        [{'x': array([[1, 2], [3, 4]])}]
    """
    made_at = current_source()
    if isinstance(items, (str, bytes, Mapping)):
        raise FeedError(
            f"from_iterable: takes an iterable of items, got {type(items).__name__}",
            source=made_at,
            hint="gc.data.from_arrays for a dict of arrays, gc.data.from_text for a file",
        )
    hint = "gc.data.from_generator takes functions"
    return _of_any("from_iterable", items, iterables.to_numpy, hint)


@explained
def from_records(records: Paths | Iterable[bytes]) -> Pipeline:
    """A pipeline of records as bytes: TFRecord files, or any reader of records.

    Args:
        records: the paths of TFRecord files; or an iterable of bytes. With `len` and `[]` it is
            read in any order. If its iterators have `state()` and `restore(tree)`, positions are
            restored by these, and otherwise by passing over records.

    Raises:
        DataError: there is no such file. From `next`: a record is damaged.

    Examples:
        >>> list(gc.data.from_records([b"one", b"two"]).map(len))
        [3, 3]
    """
    made_at = current_source()
    if isinstance(records, (str, os.PathLike)) or _are_paths(records):
        return Pipeline(Records(made_at, tuple(existing_files("from_records", records))))
    hint = "pass the paths of TFRecord files, or an iterable of bytes"
    return _of_any("from_records", records, iterables.same, hint)


def _are_paths(records: object) -> TypeGuard[Sequence[str | os.PathLike[str]]]:
    return (
        isinstance(records, (list, tuple))
        and bool(records)
        and all(isinstance(each, (str, os.PathLike)) for each in records)
    )


def _of_any(name: str, items: object, convert: Callable[[Record], Record], hint: str) -> Pipeline:
    """The pipeline of an iterator, a sequence or another iterable."""
    made_at = current_source()
    if isinstance(items, Iterator):
        return _once(name, items, convert)
    if iterables.is_sequence(items):
        return Pipeline(Indexed(made_at, name, iterables.Sequence(name, items)))
    if not hasattr(items, "__iter__"):
        what = f"{name}: {type(items).__name__} is not iterable"
        raise FeedError(what, source=made_at, hint=hint)
    return Pipeline(iterables.Iterating(made_at, name, iterables.Iter(items), None, convert))


def _once(name: str, items: Iterator[Record], convert: Callable[[Record], Record]) -> Pipeline:
    """The pipeline of an iterator, which is read once."""
    node = iterables.Iterating(
        current_source(), name, lambda: items, iterables.once(items), convert
    )
    return Pipeline(node)
