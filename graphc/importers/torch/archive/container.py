"""The zip file of `torch.export.save`: its members, with checks."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any, Final

from graphc.errors import ModelFileError

_MOST_MEMBERS: Final = 1 << 20
_LONGEST_TEXT: Final = 1 << 28  # bytes of JSON
_BROKEN: Final = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    NotImplementedError,  # a kind of compression
    OSError,
    OverflowError,
    RuntimeError,  # encryption; deep nesting in JSON
    ValueError,
    struct.error,
)
_SAVE_AGAIN: Final = (
    "if you trust the file, load it with torch.export.load, and save it with torch 2.9 or newer"
)


def broken(what: str, hint: str = "save the program again") -> ModelFileError:
    """The error for a file that is not read."""
    return ModelFileError.here(f"from_torch: {what}", hint=hint)


class Archive:
    """A .pt2 file.

    PyTorch does not compress the members. Files with compressed members are refused, so what is
    read is never larger than the file.

    Attributes:
        name: of the file, for errors.
        size: of the file in bytes.
        model: the name of the model in it.

    Raises:
        ModelFileError: it is not a .pt2 file of a known form.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = Path(path).name
        try:
            self.size = Path(path).stat().st_size
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            why = error.strerror or "it is damaged"
            raise broken(f"{path} cannot be read: {why}", "check the path") from error
        except _BROKEN as error:
            raise broken(f"{self.name} is not a .pt2 file, or is truncated") from error
        self._members = self._checked()
        self.model = self._model()

    def _checked(self) -> dict[str, zipfile.ZipInfo]:
        """The members by their names below the only folder."""
        found: dict[str, zipfile.ZipInfo] = {}
        members = self._zip.infolist()
        if len(members) > _MOST_MEMBERS:
            raise broken(f"{self.name} has {len(members)} members")
        for member in members:
            name = member.filename.partition("/")[2]
            if name in found:
                raise broken(f"{self.name} has the member {member.filename!r} twice")
            if member.compress_type != zipfile.ZIP_STORED:
                raise broken(f"{self.name} has a compressed member: {member.filename!r}")
            found[name] = member
        if sum(member.file_size for member in members) > self.size:
            raise broken(f"{self.name} has members that are larger than the file")
        return found

    def _model(self) -> str:
        names = [n for n in self._members if n.startswith("models/") and n.endswith(".json")]
        if "serialized_exported_program.json" in self._zip.namelist() or any(
            name.startswith(("data/weights/", "data/constants/")) and name.endswith(".pt")
            for name in self._members
        ):
            raise broken(
                f"{self.name} is of an old version of PyTorch, whose weights are pickled",
                _SAVE_AGAIN,
            )
        if any(name.startswith("data/aotinductor/") for name in self._members):
            raise broken(
                f"{self.name} holds machine code of AOTInductor, and no graph",
                "save the program itself: torch.export.save(program, path)",
            )
        if len(names) != 1:
            raise broken(f"{self.name} holds {len(names)} models, expected one")
        if self.bytes("byteorder") != b"little":
            raise broken(f"{self.name} was saved on a machine whose byte order is not supported")
        return names[0].removeprefix("models/").removesuffix(".json")

    def bytes(self, name: str) -> bytes:
        """The contents of a member, whose checksum is checked.

        Raises:
            ModelFileError: there is no such member, or it is damaged.
        """
        try:
            return self._zip.read(self._members[name])
        except KeyError as error:
            raise broken(f"{self.name} has no member {name!r}") from error
        except _BROKEN as error:
            raise broken(f"{self.name}: the member {name!r} is damaged") from error

    def json(self, name: str) -> Any:
        """A member that is JSON.

        Raises:
            ModelFileError: it is not.
        """
        member = self._members.get(name)
        if member is not None and member.file_size > _LONGEST_TEXT:
            raise broken(f"{self.name}: {name} has {member.file_size} bytes")
        data = self.bytes(name)
        try:
            return json.loads(data)
        except _BROKEN as error:
            raise broken(f"{self.name}: {name} is not JSON") from error

    def close(self) -> None:
        self._zip.close()
