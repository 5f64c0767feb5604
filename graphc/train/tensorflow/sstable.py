"""The index of a TensorFlow checkpoint: a table of sorted keys, in LevelDB's format.

A file is blocks of entries, an index block with the place of each block, and a footer with that of
the index block. An entry shares a prefix of its key with the entry before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from graphc.data.records.wire import Malformed, read_varint
from graphc.data.records.wire import varint as write_varint
from graphc.train.tensorflow.tensors import broken

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
_MASK = 0xA282EAD8
_MOST_BYTES = 1 << 28  # of a block after decompression
_BLOCK = 1 << 16  # bytes after which a new block begins


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer and the position after it.

    Raises:
        ModelFileError: the data ends before it does.
    """
    try:
        return read_varint(data, at, len(data))
    except Malformed:
        raise broken("the index of the checkpoint is truncated or altered") from None


def unmasked(crc: int) -> int:
    """A CRC32C from the form in which files store it."""
    rotated = (crc - _MASK) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def masked(crc: int) -> int:
    """A CRC32C in the form in which files store it."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def entries(data: bytes, checksum: Callable[[bytes], int]) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table.

    Raises:
        ModelFileError: the file is truncated or altered.
    """
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise broken("the index of the checkpoint is truncated, or not of TensorFlow's format")
    footer = data[-_FOOTER:]
    _, at = varint(footer, 0)
    _, at = varint(footer, at)
    for _, place in _block_entries(_block(data, footer, at, checksum)):
        yield from _block_entries(_block(data, place, 0, checksum))


def _block(data: bytes, handle: bytes, at: int, checksum: Callable[[bytes], int]) -> bytes:
    start, at = varint(handle, at)
    size, _ = varint(handle, at)
    if start + size + 5 > len(data):
        raise broken("the index of the checkpoint is truncated")
    stored = int.from_bytes(data[start + size + 1 : start + size + 5], "little")
    if checksum(data[start : start + size + 1]) != unmasked(stored):
        raise broken("the index of the checkpoint is altered: a checksum does not match")
    content, kind = data[start : start + size], data[start + size]
    if kind == 1:
        return decompressed(content)
    if kind != 0:
        raise broken(f"the index of the checkpoint has a block of the unknown compression {kind}")
    return content


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise broken("the index of the checkpoint has an empty block")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or at + own + size > end:
            raise broken("the index of the checkpoint has an entry that does not fit its block")
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + size]
        at += size


def decompressed(data: bytes) -> bytes:
    """The content of a block that Snappy has compressed.

    Raises:
        ModelFileError: it is altered.
    """
    size, at = varint(data, 0)
    if size > _MOST_BYTES:
        raise broken("the index of the checkpoint has a block that is too large")
    out = bytearray()
    while at < len(data) and len(out) <= size:
        at = _copy(data, at, out) if data[at] & 3 else _literal(data, at, out)
    if len(out) != size:
        raise broken("the index of the checkpoint has a compressed block that is altered")
    return bytes(out)


def _literal(data: bytes, at: int, out: bytearray) -> int:
    length = data[at] >> 2
    at += 1
    if length >= 60:
        extra = length - 59
        length = int.from_bytes(data[at : at + extra], "little")
        at += extra
    out += data[at : at + length + 1]
    return at + length + 1


def _copy(data: bytes, at: int, out: bytearray) -> int:
    tag, kind = data[at], data[at] & 3
    at += 1
    if kind == 1:
        length, extra = (tag >> 2 & 7) + 4, 1
        offset = (tag >> 5) << 8
    else:
        length, extra, offset = (tag >> 2) + 1, 2 if kind == 2 else 4, 0
    offset |= int.from_bytes(data[at : at + extra], "little")
    if not 0 < offset <= len(out) or at + extra > len(data):
        raise broken("the index of the checkpoint has a compressed block that is altered")
    for _ in range(length):
        out.append(out[-offset])
    return at + extra


def table(content: Mapping[bytes, bytes], checksum: Callable[[bytes], int]) -> bytes:
    """A table with these keys and values. Nothing is compressed, and no key shares a prefix."""
    data, index, open_block = bytearray(), {}, dict[bytes, bytes]()

    def close(block: Mapping[bytes, bytes]) -> bytes:
        """Writes a block. Returns its place."""
        start, content = len(data), _block_of(block) + b"\0"  # 0: it is not compressed
        data.extend(content + masked(checksum(content)).to_bytes(4, "little"))
        return write_varint(start) + write_varint(len(content) - 1)

    for key in sorted(content):
        if sum(map(len, open_block.values())) > _BLOCK:
            index[next(reversed(open_block))] = close(open_block)
            open_block = {}
        open_block[key] = content[key]
    if open_block:
        index[next(reversed(open_block))] = close(open_block)
    footer = close({}) + close(index)
    return bytes(data) + footer.ljust(_FOOTER - 8, b"\0") + _MAGIC


def _block_of(content: Mapping[bytes, bytes]) -> bytes:
    data, starts = bytearray(), []
    for key, value in content.items():
        starts.append(len(data))
        data += write_varint(0) + write_varint(len(key)) + write_varint(len(value)) + key + value
    places = starts or [0]
    return bytes(data) + b"".join(n.to_bytes(4, "little") for n in (*places, len(places)))
