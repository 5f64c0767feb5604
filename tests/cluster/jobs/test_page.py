"""The web page in headless Chromium: a real service, jobs that are shell scripts, real clicks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphc.cluster.jobs.server import JobsServer
from graphc.cluster.jobs.service import JobService
from graphc.cluster.jobs.users import Users
from tests.cluster.jobs.helpers import ANN, BOB, ROOT, USERS, script, service_of, submit, use_shell
from tests.reports.chromium import FOUND, Page, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_jax,
    pytest.mark.skipif(FOUND is None, reason="chromium is not installed"),
    pytest.mark.xdist_group("chromium"),
]
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    use_shell(monkeypatch)
    monkeypatch.setattr("graphc.cluster.jobs.service._TURN", 0.02)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[JobsServer, JobService]]:
    service = service_of(folder)
    with JobsServer(service, Users(USERS)) as server:
        yield server, service
        for state in ("queued", "running"):
            for record in service.store.active(state):
                service.store.stop(record.id, time.time())
        end = time.monotonic() + 30
        while service.store.active("running") and time.monotonic() < end:
            time.sleep(0.02)


def visit(page: Page, server: JobsServer, token: str | None = ANN, more: str = "") -> None:
    page.requests.clear()
    page.send("Page.navigate", url="about:blank")
    part = f"#token={token}{more}" if token else more
    page.send("Page.navigate", url=f"http://127.0.0.1:{server.port}/{part}")
    page.wait('document.readyState === "complete" && location.protocol === "http:"')
    page.eval("window.id = (name) => document.getElementById(name); 0")
    if token:
        page.wait("!id('content').hidden")


def text(page: Page, selector: str = "body") -> str:
    return str(page.eval(f"document.querySelector({selector!r}).innerText"))


def fill(page: Page, **values: object) -> None:
    page.eval("id('new').open = true")
    for name, value in values.items():
        page.eval(f"id({name!r}).value = ''; id({name!r}).focus()")
        page.type(str(value))


def rows(page: Page) -> list[list[str]]:
    cells = "[...row.cells].map(cell => cell.innerText)"
    return list(page.eval(f"[...id('jobs').tBodies[0].rows].map(row => {cells})"))


def test_a_job_from_the_form_to_its_end(page: Page, tmp_path: Path) -> None:
    log = "step,loss\\n1,2\\n2,nan\\n3,1\\n4,0.5\\n"
    script(tmp_path, f'printf "{log}" > "$GRAPHC_LOG_DIR/log.csv"; echo "got $*"; '
           "while [ -e job.py ] && [ ! -e go ]; do sleep 0.02; done; echo bye")  # fmt: skip
    with serving(tmp_path) as (server, _):
        visit(page, server)
        assert page.eval("location.hash") == ""  # the token is not in the address
        assert "There are no jobs." in text(page)
        fill(page, program="job.py", processes=2, lines="rate = 0.1\nfast = true", arguments="last")
        page.click("button.main")
        page.wait("id('log').textContent.includes('got --rate=0.1 --fast last')")
        page.wait("id('state').textContent === 'running'")
        page.wait("document.querySelectorAll('#charts .curve').length === 1")
        curve = page.eval("document.querySelector('#charts .curve').getAttribute('d')")
        assert curve.count("M") == 2 and curve.count("L") == 1  # nan is a gap
        assert "tensorboard --logdir" in text(page, "#details")
        page.wait("id('jobs').innerText.includes('running')")
        (row,) = rows(page)
        assert row[1:7] == ["job", "ann", "running", "2", "2", "0"]
        assert "2 of 4 devices in use" in text(page, "#facts")
        (tmp_path / "go").touch()
        page.wait("id('log').textContent.endsWith('bye\\n')")
        page.wait("id('log-state').textContent === 'ended'")
        page.wait("id('state').textContent === 'succeeded'")
        hosts = {url.split("/")[2] for url in page.requests if url.startswith("http")}
        assert hosts == {f"127.0.0.1:{server.port}"}


def test_stop_resume_and_restart(page: Page, tmp_path: Path) -> None:
    script(tmp_path, 'echo "in $GRAPHC_OUTPUT_DIR"; exec sleep 60')
    with serving(tmp_path) as (server, service):
        number = submit(service)
        visit(page, server, more=f"&job={number}")
        buttons = "[...document.querySelectorAll('[data-action]')].filter(e => !e.hidden)"
        for action, run in (("resume", 1), ("restart", 2)):
            page.wait("id('log').textContent.includes('run-1/')")
            page.wait("id('state').textContent === 'running'")
            page.click("[data-action=stop]")
            page.wait("id('state').textContent === 'stopped'")
            assert page.eval(f"{buttons}.map(e => e.dataset.action)") == ["resume", "restart"]
            page.click(f"[data-action={action}]")
            page.wait(f"id('log').textContent.includes('run-{run}/')")
        page.wait("id('state').textContent === 'running'")
        assert service.store.get(number).run == 2


def test_mistakes_are_shown_at_the_form(page: Page, tmp_path: Path) -> None:
    script(tmp_path, "exit 0")
    with serving(tmp_path) as (server, service):
        visit(page, server)
        fill(page, program="missing.py", memory="lots")
        page.click("button.main")
        page.wait("!id('refused').hidden")
        assert 'memory: must be a size such as "4GiB"' in text(page, "#refused")
        fill(page, memory="", lines="no value")
        page.click("button.main")
        page.wait("id('refused').innerText.includes('each line must be NAME = VALUE')")
        fill(page, lines="")
        page.click("button.main")
        page.wait("id('refused').innerText.includes(\"no file 'missing.py'\")")
        page.eval("id('kind').value = 'artifact'; id('kind').dispatchEvent(new Event('change'))")
        assert "Inputs, one a line" in text(page, "#submit") and page.eval("id('nodes').hidden")
        assert service.store.jobs() == []
        programs = "[...id('programs').children].map(e => e.value)"
        assert page.eval(programs) == ["job.py"]


def test_each_user_sees_their_own_jobs(page: Page, tmp_path: Path) -> None:
    script(tmp_path, "exit 3")
    with serving(tmp_path) as (server, service):
        submit(service, "ann", name="of-ann")
        submit(service, "bob", name="of-bob")
        for token, names in ((ANN, ["of-ann"]), (BOB, ["of-bob"]), (ROOT, ["of-bob", "of-ann"])):
            visit(page, server, token)
            page.wait(f"id('jobs').tBodies[0].rows.length === {len(names)}")
            assert [row[1] for row in rows(page)] == names
        page.wait("id('facts').innerText.includes('2 failed')")
        assert "it ended with exit status 3" in text(page, "#jobs")


def test_tokens(page: Page, tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        visit(page, server, token=None)
        page.eval("sessionStorage.clear()")
        visit(page, server, token=None)
        page.wait("!id('login').hidden")
        page.wait("id('problem').innerText.includes('This service asks for a token.')")
        for token, accepted in (("wrong", False), (ANN, True)):
            page.eval("id('token').focus()")
            page.type(token)
            page.key("Enter")
            page.wait(f"id('problem').innerText.includes('401') !== {str(accepted).lower()}")
            page.wait(f"id('content').hidden !== {str(accepted).lower()}")


def test_hostile_texts_are_only_texts(page: Page, tmp_path: Path) -> None:
    script(tmp_path, f"cat <<'E'\n{HOSTILE}\n\nevent: end\nE\n"
           f"cat > \"$GRAPHC_LOG_DIR/log.csv\" <<'E'\n\"{HOSTILE.replace(chr(34), chr(34) * 2)}\"\n"
           "1\nE\n")  # fmt: skip
    with serving(tmp_path) as (server, service):
        number = submit(service, arguments=[HOSTILE], parameters={"x": HOSTILE})
        service.store.submit(HOSTILE, service.store.get(number).spec, time.time())
        visit(page, server, ROOT, f"&job={number}")
        page.wait("id('log-state').textContent === 'ended'")
        page.wait("document.querySelectorAll('#charts figure').length === 1")
        assert HOSTILE in page.eval("id('log').textContent")
        assert "\n\nevent: end\n" in page.eval("id('log').textContent")
        assert HOSTILE in text(page, "#charts") and HOSTILE in text(page, "#details")
        assert HOSTILE in text(page, "#jobs")
        assert page.eval("document.title") == "Jobs"
        assert page.eval("document.querySelectorAll('img, main script').length") == 0


def test_another_site_cannot_submit(page: Page, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    script(tmp_path / "a", "exit 0")
    with serving(tmp_path / "a") as (server, service), serving(tmp_path / "b") as (other, _):
        page.send("Page.navigate", url=f"http://127.0.0.1:{other.port}/health")
        page.wait(f"location.port === '{other.port}' && document.readyState === 'complete'")
        target = f"http://127.0.0.1:{server.port}/v1/jobs"
        body = "method: 'POST', body: JSON.stringify({script: 'job.py'})"
        for option in (
            "mode: 'no-cors'",
            f"headers: {{'x-graphc-jobs': '1', authorization: 'Bearer {ANN}'}}",
        ):
            page.eval(f"fetch({target!r}, {{{body}, {option}}}).then(() => 1, () => 0)")
        assert service.store.jobs() == []


def test_a_service_that_ends_and_returns(page: Page, tmp_path: Path) -> None:
    script(tmp_path, "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    service = service_of(tmp_path)
    with JobsServer(service, Users(USERS)) as server:
        port = server.port
        number = submit(service)
        visit(page, server, more=f"&job={number}")
        page.wait("id('log').textContent === 'one\\n'")
    page.wait("id('problem').innerText.includes('The service does not answer.')")
    (tmp_path / "go").touch()
    with JobsServer(service_of(tmp_path), Users(USERS), port=port):
        page.wait("id('log').textContent === 'one\\ntwo\\n'")  # no line is shown twice
        page.wait("id('problem').hidden && id('state').textContent === 'succeeded'")


def test_a_long_queue_and_a_narrow_window(page: Page, tmp_path: Path) -> None:
    script(tmp_path, "exec sleep 60")
    with serving(tmp_path) as (server, service):
        for _ in range(130):
            submit(service, processes=4)
        visit(page, server)
        page.wait("id('further').innerText.includes('30 further jobs')")
        for width in (390, 1500):
            page.send(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=900, deviceScaleFactor=1, mobile=False,
            )  # fmt: skip
            page.eval("id('new').open = true")
            page.frame()
            assert page.eval("document.documentElement.scrollWidth") == width
        page.send("Emulation.clearDeviceMetricsOverride")
        page.eval("document.querySelectorAll('button.link')[2].focus()")
        page.key("Enter")
        page.wait("id('title').textContent.startsWith('Job 3:')")


def test_light_and_dark(page: Page, tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        visit(page, server)
        colours = []
        for scheme in ("light", "dark"):
            page.colours(scheme)
            colours.append(page.eval("getComputedStyle(document.body).backgroundColor"))
        assert colours == ["rgb(255, 255, 255)", "rgb(20, 24, 30)"]
