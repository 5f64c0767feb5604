"""The status page in headless Chromium: real servers, real clicks."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from graphc.serving import Server
from graphc.serving.models.versions import VersionStatus
from tests.reports.chromium import FOUND, Page, browser
from tests.serving.stateful import CountingManager
from tests.serving.status_server import HOSTILE, Models, address, model, serving, several

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOUND is None, reason="chromium is not installed"),
    pytest.mark.xdist_group("chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def visit(page: Page, server: Server, until: str = "!id('content').hidden") -> None:
    page.requests.clear()
    page.send("Page.navigate", url=address(server))
    page.wait('document.readyState === "complete"')
    page.eval("window.id = (name) => document.getElementById(name); 0")
    page.wait(until)


def text(page: Page, selector: str = "body") -> str:
    return str(page.eval(f"document.querySelector({selector!r}).innerText"))


def post(server: Server, path: str, body: bytes) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)) as rest:
        rest.request("POST", path, body)
        return rest.getresponse().status


def row(page: Page, place: int, number: int) -> list[str]:
    """The cells of a table row that shows a model's version."""
    rows = f"document.querySelectorAll('.model')[{place}].querySelector('tbody').rows"
    return list(page.eval(f"[...{rows}[{number}].cells].map(cell => cell.innerText)"))


def test_what_it_shows(page: Page) -> None:
    models, counting = several(), CountingManager()
    models.sessions = counting.sessions
    with serving(models) as server:
        visit(page, server)
        assert "sessions" not in text(page, "#facts")
        counting.sessions.open(counting.servable, "add")
        page.wait("id('facts').innerText.includes('1 of 64 sessions open, with 8 bytes')")
        counting.sessions.close()
        assert text(page, "#state") == "ready"
        assert "0 of 256 requests in progress" in text(page, "#facts")
        assert page.eval("[...document.querySelectorAll('h3')].map(e => e.textContent)") == [
            HOSTILE, "broken", "flowers",
        ]  # fmt: skip
        version, state, share, requests, _, errors, p50, p99, labels = row(page, 2, 1)
        assert (version, state, share, requests, errors) == ("3", "AVAILABLE", "95 %", "4", "1")
        assert p50.endswith(" ms") and p99.endswith(" s") and labels == "stable"
        assert row(page, 1, 0)[:2] == ["9223372036854775807", "END"]
        assert row(page, 1, 1) == [
            "FAILED_PRECONDITION: the artifact is damaged: model.gcx: checksum of 'kernel' differs"
            "\nhint: save it again"
        ]
        assert "predict\t3\t21.7\t4.4 %\t2\t" in text(page, ".model:nth-child(3)")
        assert "timeout 1 · full 1 · idle 1" in text(page, ".model:nth-child(3)")
        assert {url.rpartition(":")[2].partition("/")[0] for url in page.requests} == {
            str(server.rest_port)
        }


def test_hostile_texts_are_only_texts(page: Page) -> None:
    with serving(several()) as server:
        for name in ("%3Cscript%3Edocument.title='hacked'", "%3Cimg%20src=x%20onerror=alert(1)%3E"):
            assert post(server, f"/v1/models/{name}:predict", b'{"instances": [1]}') == 404
        visit(page, server)
        page.wait("id('errors').children.length === 2")
        assert "<img src=x onerror=alert(1)>" in text(page, "#errors")
        assert "document.title='hacked'" in text(page, "#models")
        page.wait(f"id('facts').innerText !== {text(page, '#facts')!r}")  # the page refreshed
        assert page.eval("document.title") == "Model server"
        assert page.eval("document.querySelectorAll('img, main script, main a').length") == 0


def test_it_refreshes_and_counts_a_second(page: Page) -> None:
    models = several()
    with serving(models) as server:
        visit(page, server)
        models.rows["new"] = model(VersionStatus(1, "AVAILABLE"), shares={1: 100.0})
        del models.rows["broken"]
        titles = "[...document.querySelectorAll('.model h3')].slice(1).map(e => e.textContent)"
        page.wait(f"{titles}.join() === 'flowers,new'")
        assert row(page, 1, 0)[4] == "0"  # requests per second
        for _ in range(3000):
            server.metrics.request("flowers", 4, "Predict", "OK", 0.001, "REST")
            page.frame()
            if row(page, 1, 0)[4] != "0":
                break
        assert float(row(page, 1, 0)[4]) > 0


def test_a_click_reloads_a_model(page: Page) -> None:
    models = several()
    with serving(models) as server:
        visit(page, server)
        page.click(".model:nth-child(2) button")
        page.wait("document.querySelector('.model:nth-child(2) button').textContent === 'Reload'")
        assert models.retried == ["broken"]
        page.eval("document.querySelector('.model:nth-child(3) button').focus()")
        page.key("Enter")
        page.wait("document.querySelector('.model:nth-child(3) button').textContent === 'Reload'")
        assert models.retried == ["broken", "flowers"]


def test_another_site_cannot_reload(page: Page) -> None:
    """A page of another origin sends every request it can; the browser and the server refuse it."""
    models = several()
    with serving(models) as server, serving(Models({})) as other:
        page.send("Page.navigate", url=f"http://127.0.0.1:{other.rest_port}/health/live")
        page.wait(f"location.port === '{other.rest_port}' && document.readyState === 'complete'")
        target = f"http://127.0.0.1:{server.rest_port}/status/reload"
        body = "method: 'POST', body: JSON.stringify({model: 'broken'})"
        simple, marked = "mode: 'no-cors'", "headers: {'x-graphc-status': 'reload'}"
        found = [
            page.eval(
                f"fetch({target!r}, {{{body}, {option}}}).then(() => 'sent', () => 'refused')"
            )
            for option in (simple, marked)
        ]
        assert found == ["sent", "refused"] and models.retried == []
        count = server.metrics.requests.value
        assert count("", "", "ReloadModel", "REST", "PERMISSION_DENIED") == 1


def test_tokens(page: Page) -> None:
    models = several()
    with serving(models, tokens=("secret",)) as server:
        visit(page, server, "!id('login').hidden")
        assert "This server asks for a token." in text(page)
        for token, shown in (("wrong", False), ("secret", True)):
            page.eval("id('token').value = ''; id('token').focus()")
            page.type(token)
            page.key("Enter")
            page.wait(f"id('problem').innerText.includes('401') !== {str(shown).lower()}")
            page.wait(f"id('content').hidden !== {str(shown).lower()}")
        page.click(".model:nth-child(2) button")
        page.wait("document.querySelector('.model:nth-child(2) button').textContent === 'Reload'")
        assert models.retried == ["broken"]
        page.eval("sessionStorage.clear()")


def test_many_models_and_a_narrow_window(page: Page) -> None:
    rows: dict[str, Any] = {
        f"recommender-{i:02}": model(VersionStatus(1, "AVAILABLE"), shares={1: 100.0})
        for i in range(40)
    }
    rows["x" * 400] = model(VersionStatus(1, "AVAILABLE"), labels={"l" * 200: 1})
    with serving(Models(rows)) as server:
        visit(page, server)
        for width in (390, 1500):
            page.send(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=900, deviceScaleFactor=1, mobile=False,
            )  # fmt: skip
            page.frame()
            assert page.eval("document.documentElement.scrollWidth") == width
        page.send("Emulation.clearDeviceMetricsOverride")
        page.eval("id('filter').focus()")
        page.type("ER-07")
        seen = "[...document.querySelectorAll('.model')].filter(e => !e.hidden).length"
        assert page.eval(seen) == 1
        page.type("?")
        assert page.eval(seen) == 0 and "No model has this in its name." in text(page)


def test_a_server_that_ends(page: Page) -> None:
    with serving(several()) as server:
        visit(page, server)
    page.wait("id('problem').innerText.includes('The server does not answer.')")
    assert page.eval("document.body.classList.contains('stale')")
    assert "flowers" in text(page)  # known data stays


def test_light_and_dark(page: Page) -> None:
    with serving(several()) as server:
        visit(page, server)
        colours = []
        for scheme in ("light", "dark"):
            page.colours(scheme)
            colours.append(page.eval("getComputedStyle(document.body).backgroundColor"))
        assert colours == ["rgb(255, 255, 255)", "rgb(20, 24, 30)"]
