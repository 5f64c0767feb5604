"""Traffic shares are exact for all percentages, also while versions change."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from graphc.serving.models.traffic import Traffic


@given(st.lists(st.integers(0, 100), min_size=2, max_size=5), st.integers(1, 300))
def test_shares_are_exact_at_every_moment(shares: list[int], count: int) -> None:
    total = sum(shares)
    if not total:
        return
    percent = {version: 100 * share / total for version, share in enumerate(shares)}
    traffic = Traffic(percent)
    taken = Counter(traffic.next(percent) for _ in range(count))
    for version, share in percent.items():
        assert abs(taken[version] - count * share / 100) < len(shares)
        assert share or not taken[version]


def test_the_share_of_an_unavailable_version_goes_to_the_others() -> None:
    traffic = Traffic({1: 90, 2: 10})
    assert {traffic.next({2, 3}) for _ in range(20)} == {2}
    assert traffic.next({3}) is None
    assert traffic.next(set()) is None
    after = Counter(traffic.next({1, 2}) for _ in range(100))
    assert 88 <= after[1] <= 92
