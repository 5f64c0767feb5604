"""Values that users pass are kept or refused: one rule for every container, dtype and method."""

import array as buffers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import graphc as gc
from graphc.errors import DTypeError, FeedError
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.node import Tensor
from graphc.ir.program import Port
from graphc.ir.types import parse_type
from graphc.runtime.feeds.feeds import FeedSpec

INTEGERS = [f"{sign}{bits}" for sign in "iu" for bits in (4, 8, 16, 32, 64)]


def spec(text: str) -> FeedSpec:
    return FeedSpec(Port("x", "feed", Tensor(parse_type(text), "x")), None, copy=True)


class HasArray:
    """An object with the array interface that pandas and others offer to NumPy."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._value


class HasDLPack:
    """An object with the DLPack interface, which NumPy does not check."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._value.__dlpack_device__()


class Rows:
    """A sequence that is not a list or a tuple."""

    def __init__(self, value: list[int]) -> None:
        self._value = value

    def __len__(self) -> int:
        return len(self._value)

    def __getitem__(self, i: int) -> int:
        return self._value[i]


def wide(values: list[int]) -> Any:
    """Returns a 64-bit array; it is unsigned if a number is too large for int64."""
    return np.array(values, np.uint64 if max(values) >= 2**63 else np.int64)


def on_device(values: list[int]) -> jax.Array:
    with jax.enable_x64(True):
        return jax.device_put(wide(values))


def sharded(values: list[int]) -> jax.Array:
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    with jax.enable_x64(True):
        return jax.device_put(wide(values), NamedSharding(mesh, PartitionSpec("d")))


CONTAINERS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "list of scalars of NumPy": lambda v: list(wide(v)),
    "list of arrays": lambda v: list(map(np.asarray, wide(v))),
    "sequence": Rows,
    "array": wide,
    "array in the other byte order": lambda v: wide(v).astype(wide(v).dtype.newbyteorder()),
    "array on a device": on_device,
    "array on two devices": sharded,
    "__array__": lambda v: HasArray(wide(v)),
    "__dlpack__": lambda v: HasDLPack(wide(v)),
    "buffer": lambda v: buffers.array("Q" if max(v) >= 2**63 else "q", v),
    "memoryview": lambda v: memoryview(wide(v)),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_fit_or_are_refused(dtype: str, container: str) -> None:
    take = spec(f"{dtype}[2]")
    limits = ml_dtypes.iinfo(take.dtype)
    low, high = int(limits.min), int(limits.max)
    for pair in ([low, low + 1], [high, high - 1]):
        got = np.asarray(take.convert(CONTAINERS[container](pair)))
        assert got.dtype == take.dtype
        assert [int(n) for n in got] == pair
    for pair in ([0, low - 1], [high + 1, 1]):
        if min(pair) >= -(2**63) and max(pair) < 2**64:  # the range that a container can hold
            with pytest.raises(FeedError, match=r"feed 'x' must be|out of range"):
                take.convert(CONTAINERS[container](pair))


@pytest.mark.parametrize("given, dtype", [(np.ulonglong, "u64"), (np.longlong, "i64")])
def test_a_dtype_that_only_equals_that_of_the_feed(given: type, dtype: str) -> None:
    got = spec(f"{dtype}[2]").convert(np.array([3, 2**62], given))
    assert got.dtype.type is BY_SHORT[dtype].type
    assert got.tolist() == [3, 2**62]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_python_integers_of_any_size(dtype: str) -> None:
    take = spec(f"{dtype}[]")
    high = int(ml_dtypes.iinfo(take.dtype).max)
    assert int(take.convert(high)) == high
    for value in (high + 1, 2**64, 2**70, -(2**70), 10**5000):
        with pytest.raises(FeedError, match=r"do not fit|out of range"):
            take.convert(value)
        with pytest.raises(FeedError, match=r"do not fit|out of range"):
            spec(f"{dtype}[2]").convert([0, value])


def test_lists_with_integers_above_those_of_int64() -> None:
    """NumPy reads such a list as floats if it also contains a negative number."""
    got = spec("u64[3]").convert([2**64 - 1, 0, np.uint8(7)])
    assert [int(n) for n in got] == [2**64 - 1, 0, 7]
    for values in ([2**64 - 1, -1], [2**63, 0.5], [[2**63], [1, 2]]):
        with pytest.raises(FeedError):
            spec("u64[2]").convert(values)


def test_an_empty_list_has_every_dtype() -> None:
    for type in ("f32[0]", "i32[0]", "bool[0]", "c64[0]", "u64[0]"):
        assert spec(type).convert([]).dtype == spec(type).dtype


@pytest.mark.parametrize("where", ["host", "list", "device"])
@pytest.mark.parametrize(
    "type, given",
    [
        ("f32[2]", "float64"),
        ("f16[2]", "float32"),
        ("bf16[2]", "float64"),
        ("f8e4m3fn[2]", "float32"),
        ("f8e5m2[2]", "float16"),
        ("c64[2]", "complex128"),
    ],
)
def test_floats_do_not_become_infinite(type: str, given: str, where: str) -> None:
    take = spec(type)

    def made(*values: float) -> Any:
        array = np.array(values, given)
        if where == "device":
            with jax.enable_x64(True):
                return jax.device_put(array)
        return list(array) if where == "list" else array

    most = float(ml_dtypes.finfo(take.dtype).max) if take.dtype.kind != "c" else 3e38
    assert np.asarray(take.convert(made(most, -most))).astype(given).tolist() == [most, -most] or (
        take.dtype.kind == "c"
    )
    with pytest.raises(FeedError, match="do not fit"):
        take.convert(made(1.0, 4 * most if given != "float16" else 65500.0))
    kept = [np.nan, np.inf] if type != "f8e4m3fn[2]" else [np.nan, 1.0]
    got = np.asarray(take.convert(made(*kept))).astype(np.complex128)
    assert np.isnan(got[0])
    assert got[1].real == kept[1]


def test_an_infinity_is_no_nan() -> None:
    """Some narrow float types have no infinity, and ml_dtypes converts infinity to NaN."""
    with pytest.raises(FeedError, match="inf would become nan"):
        spec("f8e4m3fn[1]").convert(np.array([np.inf], np.float32))


@pytest.mark.parametrize(
    "value",
    [
        np.ma.array([1.0, 2.0], mask=[False, True]),
        np.ma.array([1.0, 2.0]),
        [1.0, np.ma.masked],
        [np.ma.array([1.0, 2.0], mask=[False, True])],
        ([[np.ma.array([1.0], mask=[True])]],),
        HasArray(np.ma.array([1.0, 2.0], mask=[False, True])),
        [[HasArray(np.ma.array([1.0, 2.0], mask=[False, True]))]],
    ],
)
def test_masks_are_not_lost(value: Any) -> None:
    with pytest.raises(FeedError, match=r"(?s)would lose its mask.*filled"):
        spec("f32[2]").convert(value)


class Raises:
    """An object with the array interface that raises an error whenever it is used."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise KeyError("no such column")

    def __repr__(self) -> str:
        raise ZeroDivisionError


class RaisesByItem(Raises):
    __array__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> float:
        raise LookupError("closed")


class CallsItself(Raises):
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.__array__()


@pytest.mark.parametrize(
    "value, cause",
    [(Raises(), KeyError), (RaisesByItem(), LookupError), (CallsItself(), RecursionError)],
)
def test_objects_that_raise(value: Any, cause: type[Exception]) -> None:
    for given in (value, [value]):
        with pytest.raises(FeedError, match="feed 'x' is not an array of float32") as caught:
            spec("f32[3]").convert(given)
        assert isinstance(caught.value.__cause__, (cause, TypeError))
        str(caught.value)


def test_nests_that_are_too_deep() -> None:
    deep: Any = 1.0
    for _ in range(3000):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)
    for value in (deep, endless, (endless,)):
        with pytest.raises(FeedError, match="nested more than 64 deep"):
            spec("f32[1]").convert(value)


def test_values_that_jax_is_tracing() -> None:
    def f(x: Any) -> Any:
        return spec("f32[2]").convert(x)

    for trace in (jax.jit(f), jax.grad(lambda x: f(x).sum())):
        with pytest.raises(FeedError, match=r"(?s)JAX is tracing.*gc\.to_jax"):
            trace(np.ones(2, np.float32))


# -- every method that takes values ----------------------------------------------------------


class Places:
    """A model with a feed, a variable and an artifact of int8. Each method passes a value."""

    def __init__(self, folder: Path) -> None:
        self.graph = gc.Graph()
        with self.graph:
            self.x = gc.placeholder(("n",), "int8", name="x")
            self.v = gc.variable(np.zeros(2, np.int8), name="v")
            self.w = gc.variable(np.zeros(2, np.int8), name="w")
            self.y = self.x + self.v[0]
        self.session = gc.Session(self.graph)
        path = folder / "m.gcx"
        gc.save(self.session, path, signatures={"f": gc.Signature({"x": self.x}, {"y": self.y})})
        self.entry = gc.load(path).signatures["f"]
        self.step = gc.compile(self.graph, self.y, {self.x: (2,)})
        self.state = self.step.init()
        self.function, self.values = gc.to_jax(self.graph, self.y)

    def run(self, value: Any) -> Any:
        return self.session.run(self.y, {self.x: value})

    def run_steps(self, value: Any) -> Any:
        return self.session.run_steps(self.y, [{self.x: value}], 1)[0]

    def run_stacked(self, value: Any) -> Any:
        if isinstance(value, HasDLPack):  # NumPy does not check for DLPack in lists
            value = np.from_dlpack(value)
        return self.session.run_steps(self.y, {self.x: [value]}, 1)[0]

    def put(self, value: Any) -> Any:
        return self.session.put({self.x: value})[self.x]

    def prefetch(self, value: Any) -> Any:
        with gc.data.prefetch([{self.x: value}], self.session) as batches:
            return next(batches)[self.x]

    def call(self, value: Any) -> Any:
        return self.step(self.state, {self.x: value})[0]

    def to_jax(self, value: Any) -> Any:
        return self.function(self.values, {"x": value})[0]

    def put_for_step(self, value: Any) -> Any:
        return self.step.put({self.x: value})[self.x]

    def entry_point(self, value: Any) -> Any:
        return self.entry(x=value)["y"]

    def bucketing(self, value: Any) -> Any:
        return gc.Bucketing({"n": [4]}).run(self.session, self.y, {self.x: value})

    def set(self, value: Any) -> Any:
        self.session.set("w", value)
        return self.session.get("w")

    def set_all(self, value: Any) -> Any:
        self.session.set_all({"w": value})
        return self.session.get("w")

    def constant(self, value: Any) -> Any:
        with gc.Graph() as graph:
            result = gc.constant(value, "int8")
        return gc.Session(graph).run(result)

    def variable(self, value: Any) -> Any:
        with gc.Graph() as graph:
            gc.variable(value, dtype="int8", name="w")
        return gc.Session(graph).get("w")

    def initializer(self, value: Any) -> Any:
        with gc.Graph() as graph:
            gc.variable(lambda rng, shape, dtype: value, shape=(2,), dtype="int8", name="w")
        return gc.Session(graph).get("w")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("places"))


PLACES = [name for name in vars(Places) if not name.startswith("_")]


@pytest.mark.parametrize("place", PLACES)
def test_every_place_follows_the_rule(place: str, places: Places) -> None:
    take = getattr(places, place)
    for make in CONTAINERS.values():
        assert np.asarray(take(make([127, -128]))).tolist() == [127, -128]
        with pytest.raises((FeedError, DTypeError), match=r"fit|out of range"):
            take(make([300, -9]))
    for bad in (np.ma.array([1, 2], mask=[0, 1]), [1, np.ma.masked], Raises(), RaisesByItem()):
        with pytest.raises((FeedError, DTypeError), match=r"mask|read as an array|not an array"):
            take(bad)


def test_constants_keep_their_values() -> None:
    with gc.Graph():
        for value, dtype in [
            (1e300, "float32"),
            ([1e300], "float32"),
            (np.array([1e300]), "float32"),
            (np.array([1 + 1e300j]), "complex64"),
            (100_000, "float16"),
            ([100_000], "float16"),
            (300, "int4"),
            ([1.5], "int32"),
            (np.array([np.nan]), "int32"),
            (3e9, "int32"),
            (np.array([1j]), "float32"),
            (2**64, "int64"),
        ]:
            with pytest.raises(DTypeError):
                gc.constant(value, dtype)
        assert gc.constant(2.0, "int32").dtype == np.int32
        assert gc.constant([np.inf, -np.inf], "float32").shape == (2,)
        assert gc.constant(2**64 - 1, "uint64").dtype == np.uint64


# -- values of other libraries ---------------------------------------------------------------


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = torch.tensor([1.0, 2.0])
    got = spec("f32[2]").convert(given)
    given += 1
    assert got.tolist() == [1.0, 2.0]
    assert spec("i64[2]").convert(torch.tensor([1, 2])).tolist() == [1, 2]
    assert spec("bf16[2]").convert(torch.tensor([1, 2], dtype=torch.bfloat16)).tolist() == [1, 2]
    assert spec("bool[2]").convert(torch.tensor([True, False])).tolist() == [True, False]
    with pytest.raises(FeedError, match="do not fit"):
        spec("i8[2]").convert(torch.tensor([300, -9]))
    with pytest.raises(FeedError, match=r"(?s)requires grad") as caught:
        spec("f32[1]").convert(torch.ones(1, requires_grad=True))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_columns_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    got = spec("f32[2,2]").convert(frame)
    frame.iloc[0, 0] = 9
    assert got.tolist() == [[1, 3], [2, 4]]
    assert spec("i32[2]").convert(pandas.Series([1, 2])).tolist() == [1, 2]
    assert spec("i32[2]").convert(pandas.Series([1, 2], dtype="Int64")).tolist() == [1, 2]
    with pytest.raises(FeedError, match="do not fit"):
        spec("i8[2]").convert(pandas.Series([1, 300]))
    for bad in ([1, None], ["a", "b"]):
        with pytest.raises(FeedError):
            spec("i32[2]").convert(pandas.Series(bad, dtype=object))
    with pytest.raises(FeedError):
        spec("i32[2]").convert(pandas.Series([1, None], dtype="Int64"))


def test_images_of_pillow() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    picture = image.new("RGB", (4, 3), (1, 2, 255))
    assert spec("u8[3,4,3]").convert(picture)[0, 0].tolist() == [1, 2, 255]
    with pytest.raises(FeedError, match="do not fit"):
        spec("i8[3,4,3]").convert(picture)
