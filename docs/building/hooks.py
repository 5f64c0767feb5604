"""Hooks of mkdocs: the site asks no other server for anything."""

from __future__ import annotations

from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

# The theme loads this from a server where pages are files. Search needs it, also without a network.
SHIM = "https://unpkg.com/iframe-worker/shim"
OURS = "assets/iframe-worker.js"


def on_post_page(output: str, *, page: Any, **kwargs: Any) -> str:
    """Loads the shim from the site itself."""
    if SHIM not in output:
        raise PluginError(f"the theme no longer loads {SHIM}: correct docs/building/hooks.py")
    return output.replace(SHIM, get_relative_url(OURS, page.url))


def on_post_template(output: str, *, template_name: str, **kwargs: Any) -> str:
    """The same for the page of a name that does not exist."""
    return output.replace(SHIM, OURS)
