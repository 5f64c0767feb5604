"""A fixture with a browser for the tests of pages."""

from collections.abc import Iterator

import pytest

from tests.reports.chromium import browser
from tests.reports.graph_pages import GraphPage


@pytest.fixture(scope="module")
def graph_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphPage]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield GraphPage(page)
