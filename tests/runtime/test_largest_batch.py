"""The search for the largest batch, on devices whose memory use is a formula."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from graphc.errors import MemoryLimitError
from graphc.runtime import largest_batch as searching
from graphc.runtime.largest_batch import Tried, largest_batch, try_batch

LIMIT = 10**9


@pytest.fixture
def compiler(monkeypatch) -> Callable[[Callable[[int], int]], Callable[[int], SimpleNamespace]]:
    """Makes a `compile_for` function from a formula for the bytes of a batch."""
    monkeypatch.setattr(searching, "taken_by", lambda size: size)

    def make(formula: Callable[[int], int]) -> Callable[[int], SimpleNamespace]:
        def compile_for(batch: int) -> SimpleNamespace:
            taken = formula(batch)
            if taken > LIMIT:
                raise MemoryLimitError("too large", least=taken, details=[], hint="")
            step = SimpleNamespace(compiled=taken)
            step.wait = lambda: step
            return step

        return compile_for

    return make


FORMULAS = {
    "affine": lambda b: 100_000 + 1000 * b,
    "steps": lambda b: 100_000 + 1000 * (-(-b // 512) * 512),
    "square": lambda b: 100_000 + b * b // 10,
    "recomputed": lambda b: 100_000 + (1000 * b if b < 500_000 else 700 * b),
}


@pytest.mark.parametrize("start", [1, 64, 10_000, 10**8])
@pytest.mark.parametrize("unit", [1, 8])
@pytest.mark.parametrize("name", FORMULAS)
def test_the_result_is_near_the_largest(name: str, unit: int, start: int, compiler) -> None:
    formula = FORMULAS[name]
    told: list[Tried] = []
    found = largest_batch(compiler(formula), start, LIMIT, unit, told.append)
    assert found is not None and formula(found.batch) <= LIMIT and found.batch % unit == 0
    assert formula(max(found.batch + unit, found.batch + found.batch // 30)) > LIMIT
    assert len(told) <= 16 and len({tried.batch for tried in told}) == len(told)


def test_nothing_fits(compiler) -> None:
    assert largest_batch(compiler(lambda b: 2 * LIMIT + b), 4096, LIMIT, 8) is None


def test_only_one_row_fits(compiler) -> None:
    found = largest_batch(compiler(lambda b: LIMIT * b), 4096, LIMIT)
    assert found is not None and found.batch == 1


def test_one_batch(compiler) -> None:
    found = try_batch(compiler(lambda b: 2 * LIMIT), 4)
    assert found.step is None and found.bytes == 2 * LIMIT
