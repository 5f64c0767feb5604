"""The scaling model, compared with published tables."""

from __future__ import annotations

import pytest

from benchmarks.published_scaling import TABLES, Table, error

BEYOND = ("AlexNet, 8 P100", "MaxText 128B, 32 pods of v5e")  # docs/scaling.md names them


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_largest_point_is_predicted_within_8_percent(table: Table) -> None:
    if table.name in BEYOND:
        assert not table.in_field
        assert abs(error(table)) > 0.08  # otherwise, update the documentation
    else:
        assert abs(error(table)) < 0.08


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_larger_points_are_not_fitted(table: Table) -> None:
    from dataclasses import replace

    from benchmarks.published_scaling import predicted

    points = sorted(table.rates)
    fitted = points[:2] if table.model != "stated" else points[:1]
    others = {n: rate * (1 if n in fitted else 3) for n, rate in table.rates.items()}
    assert predicted(replace(table, rates=others)) == predicted(table)
