"""`Roots`: the folders from which a service runs programs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from graphc.cluster.jobs.spec import JobSpec
from graphc.errors import AttributeValueError, GraphcError

_LISTED_SECONDS: Final = 10.0  # for which a list is kept
_MOST: Final = 200  # files in a list
_MOST_SEEN: Final = 20_000  # files and folders that are looked at for it
_ENDINGS: Final = (".py", ".gcx")


class Roots:
    """The folders whose scripts, artifacts and inputs jobs may name. Links that lead out of them
    are not followed.

    Args:
        folders: absolute, or relative to the current folder.

    Raises:
        GraphcError: one of them is no folder.

    Examples:
        >>> import tempfile, pathlib
        >>> from graphc.cluster.jobs.roots import Roots
        >>> folder = tempfile.TemporaryDirectory()
        >>> _ = pathlib.Path(folder.name, "train.py").write_text("")
        >>> Roots([folder.name]).find("train.py").name
        'train.py'
        >>> folder.cleanup()
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        for folder in folders:
            if not Path(folder).is_dir():
                raise GraphcError(f"{os.fspath(folder)!r} is not a folder", hint="check --root")
        self.folders = tuple(Path(folder).resolve() for folder in folders)
        self._listed: tuple[float, list[str]] = (-math.inf, [])

    def find(self, path: str) -> Path:
        """The file of a path, which is absolute or relative to one of the folders.

        Raises:
            AttributeValueError: it is in none of the folders. The error does not say whether it
                exists elsewhere.
        """
        for root in self.folders:
            try:
                found = (root / path).resolve(strict=True)
            except (OSError, ValueError, RuntimeError):  # also a 0 character, a circle of links
                continue
            if found.is_file() and any(found.is_relative_to(each) for each in self.folders):
                return found
        raise AttributeValueError(
            f"no file {path[:200]!r} in the folders of the service",
            hint="give a path relative to one of its folders (graphc jobs serve --root FOLDER)",
        )

    def files_of(self, spec: JobSpec) -> tuple[Path, dict[str, Path]]:
        """The program and the inputs of a job.

        Raises:
            AttributeValueError: one of them is in none of the folders.
        """
        return self.find(spec.program), {n: self.find(p) for n, p in spec.inputs.items()}

    def programs(self) -> list[str]:
        """Some programs of the folders, as paths that `find` takes."""
        at, found = self._listed
        if time.monotonic() - at > _LISTED_SECONDS:
            found = sorted(islice(self._programs(), _MOST))
            self._listed = time.monotonic(), found
        return found

    def _programs(self) -> Iterator[str]:
        seen = 0
        for root in self.folders:
            for folder, folders, files in os.walk(root):
                folders[:] = sorted(name for name in folders if name[0] not in "._")
                seen += len(folders) + len(files)
                if seen > _MOST_SEEN:
                    return
                for name in sorted(files):
                    if name.endswith(_ENDINGS):
                        yield os.path.relpath(os.path.join(folder, name), root)
