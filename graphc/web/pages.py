"""Pages: HTML in a file of a package, whose own script and style run, and no others."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final

from graphc.web.http import HttpError, Scope, header

_COMMENTS: Final = {"page.css": ("/*", "*/"), "page.js": ("/*", "*/"), "page.html": ("<!--", "-->")}


@cache
def page(package: str, name: str) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A page, and the headers of its response. The page has one script and one style element. In
    each, and in the body, a comment such as `/* graphc/web/page.css */` stands for what all pages
    have.

    Args:
        package: the package whose file it is.
        name: of the file.
    """
    text = files(package).joinpath(name).read_text("utf-8")
    for common, (start, end) in _COMMENTS.items():
        content = files("graphc.web").joinpath(common).read_text("utf-8").rstrip()
        text = text.replace(f"{start} graphc/web/{common} {end}", content)
    script, style = (_hash(text, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = [(b"content-security-policy", policy.encode()), (b"referrer-policy", b"no-referrer")]
    return text.encode(), headers


def _hash(text: str, tag: str) -> str:
    (found,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(found.encode()).digest()).decode()}'"


def check_same_site(scope: Scope, mark: bytes, hint: str) -> None:
    """Refuses what another site sends in the name of a user.

    Args:
        mark: a header that other sites cannot send without our consent, in lower case.
        hint: what the request should have.

    Raises:
        HttpError: 403.
    """
    site = header(scope, b"sec-fetch-site")
    origin = header(scope, b"origin")
    host = header(scope, b"host")
    foreign = site != b"same-origin" if site else origin and origin.partition(b"://")[2] != host
    if foreign or not header(scope, mark):
        raise HttpError(403, hint)
