"""Lines of text files, with positions in bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from graphc.data.core.cursor import Cursor, Items, State
from graphc.data.core.node import FileSource, Run
from graphc.errors import AttributeValueError, DataError
from graphc.ir.source import Source

_COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def checked_encoding(name: str, encoding: Any) -> None:
    """Refuses what Python does not know.

    Raises:
        AttributeValueError: there is no such encoding.
    """
    try:
        "".encode(encoding)
    except (LookupError, TypeError) as error:
        raise AttributeValueError.here(
            f"{name}: there is no encoding {encoding!r}", hint='"utf-8", "latin-1", "utf-16", ...'
        ) from error


def open_bytes(path: str) -> IO[bytes]:
    """A file of bytes, uncompressed by the end of its name: .gz, .bz2 or .xz."""
    opener = _COMPRESSED.get(Path(path).suffix.lower())
    return open(path, "rb") if opener is None else opener(path, "rb")


def is_bytewise(encoding: str) -> bool:
    """Whether a newline is the byte 10 in an encoding, and this byte is nothing else."""
    wide = encoding.lower().replace("_", "-").startswith(("utf-7", "utf7", "hz"))
    return not wide and "\n".encode(encoding) == b"\n"


@dataclass(frozen=True, eq=False)
class Lines(FileSource):
    """The lines of files, without their ends.

    Attributes:
        paths: the files, in order.
        encoding: their encoding.
    """

    function = "from_text"
    encoding: str

    def open(self, epoch: int, run: Run) -> Cursor:
        """A cursor at the first line."""
        return LineCursor(self)


class LineFile:
    """An open file of lines, which knows its position.

    Attributes:
        line: how many lines have been read.
        offset: how many bytes have been read; not counted for encodings that are not bytewise.
    """

    def __init__(self, path: str, encoding: str, made_at: Source | None) -> None:
        self.path, self._encoding, self._made_at = path, encoding, made_at
        self.line = 0
        self.offset = 0
        self._bytes: IO[bytes] | None = None
        self._text: io.TextIOWrapper | None = None
        self._bytes = open_bytes(path)
        if not is_bytewise(encoding):
            self._text = io.TextIOWrapper(self._bytes, encoding, newline="\n")

    def read(self, n: int) -> list[str]:
        """The next `n` lines with their ends; fewer only at the end.

        Raises:
            DataError: the file cannot be read or decoded.
        """
        try:
            if self._text is not None:
                lines = []
                for line in islice(self._text, n):
                    lines.append(line)
                    self.line += 1
                return lines
            return self._decoded(list(islice(self._bytes or [], n)))
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise self._error(str(error)) from error
        except UnicodeDecodeError as error:
            raise self._error(f"the line is not {self._encoding}: {error.reason}") from error

    def _decoded(self, rows: list[bytes]) -> list[str]:
        lines = []
        for row in rows:
            lines.append(row.decode(self._encoding))
            self.line += 1
            self.offset += len(row)
        return lines

    def _error(self, what: str) -> DataError:
        return DataError(
            f"{self.path}, line {self.line + 1}: {what}",
            source=self._made_at,
            hint="encoding= is the encoding of the files, as in Python's open",
        )

    def skip(self, n: int) -> int:
        """Passes over lines."""
        if self._text is not None:
            return len(self.read(n))
        done = 0
        for row in islice(self._bytes or [], n):
            done += 1
            self.offset += len(row)
        self.line += done
        return done

    def go_to(self, line: int, offset: int) -> None:
        """Moves to the beginning of a line, by its offset if that is known."""
        if self._text is None and self._bytes is not None:
            self._bytes.seek(offset)
            self.line, self.offset = line, offset
        else:
            self.skip(line)

    def __iter__(self) -> Iterator[str]:
        while line := self.read(1):
            yield line[0]

    def close(self) -> None:
        """Closes the file."""
        if self._text is not None:
            self._text.close()
        elif self._bytes is not None:
            self._bytes.close()


class FileCursor(Cursor):
    """Reads files one after the other.

    Args:
        paths: the files.
        encoding: their encoding.
        made_at: the user's line.
    """

    def __init__(self, paths: Sequence[str], encoding: str, made_at: Source | None) -> None:
        self.paths, self.encoding, self.made_at = paths, encoding, made_at
        self.number = 0  # of the file
        self._file: LineFile | None = None

    def current(self) -> LineFile | None:
        """The open file; None after the last one."""
        if self._file is None and self.number < len(self.paths):
            path = self.paths[self.number]
            try:
                self._file = LineFile(path, self.encoding, self.made_at)
            except OSError as error:
                raise DataError(f"{path}: {error}", source=self.made_at) from error
        return self._file

    def next_file(self) -> None:
        """Closes the file and moves to the next one."""
        self.close()
        self.number += 1

    def state(self) -> State:
        """The file, and the line and offset in it."""
        file = self._file
        line, offset = (0, 0) if file is None else (file.line, file.offset)
        return {"file": self.number, "line": line, "offset": offset}

    def continue_at(self, tree: Mapping[str, Any]) -> None:
        """Opens the file at the line."""
        self.close()
        self.number = tree["file"]
        file = self.current() if tree["line"] else None
        if file is not None:
            file.go_to(tree["line"], tree["offset"])

    def origin(self) -> str:
        """The file and the line."""
        file = self._file
        return "" if file is None else f"{file.path}, line {file.line}"

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class LineCursor(FileCursor):
    """The lines of files."""

    def __init__(self, node: Lines) -> None:
        super().__init__(node.paths, node.encoding, node.made_at)

    def read(self, n: int) -> Items:
        """The next lines, without their ends."""
        found: list[str] = []
        while len(found) < n and (file := self.current()) is not None:
            wanted = n - len(found)
            lines = file.read(wanted)
            found.extend(line.removesuffix("\n").removesuffix("\r") for line in lines)
            if len(lines) < wanted:
                self.next_file()
        return found

    def skip(self, n: int) -> int:
        """Decodes no line."""
        done = 0
        while done < n and (file := self.current()) is not None:
            passed = file.skip(n - done)
            done += passed
            if done < n:
                self.next_file()
        return done
