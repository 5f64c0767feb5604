"""Malformed HTTP requests, each with its correct outcomes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.reliability.model_server import WIDTH, http

PREDICT = "/v1/models/m:predict"
GOOD = {"instances": [[0.5] * WIDTH] * 2}
ADD = {"signature_name": "add", "inputs": {"a": [1, 2], "b": [3, 4]}}
LIMIT = 1 << 20  # bytes of a body, in the attacked server
CLIENT = frozenset({400, 404, 405, 408, 413, 415, 431})


class Case(NamedTuple):
    """One attack.

    Attributes:
        parts: the bytes to send, one part after the other.
        allowed: for each answer, the set of its allowed statuses.
        end: what the client does then: "keep" reads the answers and keeps the connection,
            "close" reads until the server closes it, "half" sends the end of the stream first,
            "reset" resets it at once, "leave" leaves it open for later.
    """

    parts: list[bytes]
    allowed: tuple[frozenset[int], ...]
    end: str = "keep"


def answered(*statuses: int) -> tuple[frozenset[int], ...]:
    """Answers with these statuses, one after the other."""
    return tuple(frozenset({status}) for status in statuses)


def any_of(*statuses: int) -> tuple[frozenset[int], ...]:
    """One answer with one of these statuses."""
    return (frozenset(statuses),)


def flipped(random: random.Random, data: bytes) -> bytes:
    """The bytes with one to six bits flipped."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 6)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(random: random.Random, data: bytes) -> list[bytes]:
    """The bytes in up to four parts."""
    places = sorted(random.sample(range(1, len(data)), random.randint(0, min(3, len(data) - 1))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def good(random: random.Random) -> bytes:
    """A valid request of a random kind."""
    return http(PREDICT, random.choice([GOOD, ADD]))


# -- HTTP itself ----------------------------------------------------------------------------------


def flipped_request(random: random.Random) -> Case:
    return Case([flipped(random, good(random))], (CLIENT | {200},), "half")


def truncated_request(random: random.Random) -> Case:
    data = good(random)
    return Case(cut(random, data[: random.randrange(2, len(data) - 1)]), (CLIENT,), "half")


def reset(random: random.Random) -> Case:
    data = good(random)
    return Case(cut(random, data[: random.randrange(2, len(data))]), (), "reset")


def reset_before_the_answer(random: random.Random) -> Case:
    return Case([good(random)], (), "reset")


def junk(random: random.Random) -> Case:
    data = random.choice([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00", b"\xff\xfe"])
    return Case(
        [data + random.randbytes(random.randrange(100)) + b"\r\n\r\n"], any_of(400), "close"
    )


def junk_after_a_request(random: random.Random) -> Case:
    return Case([good(random) + b"\x00" + random.randbytes(20)], any_of(200), "close")


def lengths(random: random.Random) -> Case:
    value, status, end = random.choice(
        [
            ("-1", 400, "close"), ("9" * 30, 400, "close"), ("1e3", 400, "close"),
            ("0x10", 400, "close"), ("5\r\ncontent-length: 6", 400, "close"),
            (str(1 << 40), 413, "close"), (str(LIMIT + 1), 413, "close"),
            ("5\r\ntransfer-encoding: chunked", 400, "close"),
        ]
    )  # fmt: skip
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\ncontent-length: {value}\r\n\r\n"
    return Case([head.encode()], any_of(status), end)


def chunks(random: random.Random) -> Case:
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    body = json.dumps(GOOD).encode()
    size = b"%x\r\n" % len(body)
    right = size + body + b"\r\n0\r\n\r\n"
    data, allowed, end = random.choice(
        [
            (right, any_of(200), "keep"),
            (size + body + b"\r\n0\r\na: b\r\n\r\n", any_of(200), "keep"),
            (b"zz\r\n", any_of(400), "close"),
            (b"-5\r\n", any_of(400), "close"),
            (b"f" * 20 + b"\r\n", any_of(400), "close"),
            (size + body + b"no end", any_of(400), "close"),
            (b"3\r\n{}", any_of(408), "leave"),
            (b"1;" + b"e" * 70_000 + b"\r\n{\r\n0\r\n\r\n", any_of(400, 431), "half"),
        ]
    )
    return Case(cut(random, head + data), allowed, end)


def heads(random: random.Random) -> Case:
    start = b"GET /v1/models/m HTTP/1.1\r\nhost: x\r\n"
    return random.choice(
        [
            Case([start, b"a: b\r\n" * 20_000], any_of(431), "close"),
            Case([start, b"a: " + b"v" * 100_000], any_of(431), "close"),
            Case([b"GET /" + b"a" * 100_000], any_of(431), "close"),
            Case([start + b"a: b\r\n" * 200 + b"\r\n"], any_of(200)),
            Case([start + b"a\x00b: c\r\n\r\n"], any_of(400), "close"),
            Case([start + b"no colon\r\n\r\n"], any_of(400), "close"),
            Case([start + b": empty\r\n\r\n"], any_of(400), "close"),
            Case([b"GET /v1/models/\xff HTTP/1.1\r\nhost: x\r\n\r\n"], any_of(400), "close"),
            Case([b"GET /v1/models/m HTTP/7.1\r\nhost: x\r\n\r\n"], any_of(400), "close"),
            Case([b"NO /v1/models/m HTTP/1.1\r\nhost: x\r\n\r\n"], any_of(400), "close"),
            Case([b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n"], any_of(400), "close"),
        ]
    )


def upgrades(random: random.Random) -> Case:
    upgrade = "connection: upgrade\r\nupgrade: " + random.choice(["h2c", "websocket"]) + "\r\n"
    if random.random() < 0.5:
        return Case([http(PREDICT, GOOD, upgrade)], any_of(400), "close")
    data = f"GET /v1/models/m HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n"
    return Case([data.encode()], any_of(200), "close")


def older_http(random: random.Random) -> Case:
    return Case([good(random).replace(b"HTTP/1.1", b"HTTP/1.0")], any_of(200), "close")


def expect(random: random.Random) -> Case:
    return Case([http(PREDICT, GOOD, "expect: 100-continue\r\n")], answered(100, 200))


def pipelined(random: random.Random) -> Case:
    kinds = [(http(PREDICT, GOOD), 200), (http(PREDICT, b"{"), 400), (http("/v1/no", b""), 404),
             (http(PREDICT, ADD), 200), (http(PREDICT, GOOD, method="PUT"), 405)]  # fmt: skip
    chosen = [random.choice(kinds) for _ in range(random.randint(2, 8))]
    data = b"".join(data for data, _ in chosen)
    return Case(cut(random, data), answered(*(status for _, status in chosen)))


def methods_and_paths(random: random.Random) -> Case:
    kinds = [
        (http(PREDICT, GOOD, method=random.choice(["PUT", "DELETE", "PATCH", "OPTIONS"])), 405),
        (http("/v1/models/m", b"", method="POST"), 405),
        (http(f"/v1/models/{random.getrandbits(60):x}:predict", GOOD), 404),
        (http(f"/v1/models/m/versions/{random.randint(2, 10**18)}:predict", GOOD), 404),
        (http(f"/v1/models/m/labels/{random.getrandbits(60):x}:predict", GOOD), 400),
        (http("/v1/models/" + "m" * random.randint(2, 30_000), b"", method="GET"), 404),
        (http("/" + random.choice(["", "..", "%2e%2e/", "%00", "%ff", "v1/models/m:x"])), 404),
        (http("/v1/models/m/metadata/" + "../" * 9 + "etc/passwd", b"", method="GET"), 404),
    ]
    data, status = random.choice(kinds)
    return Case([data], any_of(status))


def encodings(random: random.Random) -> Case:
    body = gzip.compress(json.dumps(GOOD).encode(), mtime=0)
    kinds = [
        (http(PREDICT, body, "content-encoding: gzip\r\n"), (200,)),
        (http(PREDICT, body, "content-encoding: br\r\n"), (415,)),
        (http(PREDICT, body, "content-encoding: gzip, gzip\r\n"), (415,)),
        (http(PREDICT, body[:-6], "content-encoding: gzip\r\n"), (400,)),
        (http(PREDICT, flipped(random, body), "content-encoding: gzip\r\n"), (200, 400)),
        (http(PREDICT, body), (400,)),
        (http(PREDICT, gzip.compress(bytes(20 * LIMIT), 1), "content-encoding: gzip\r\n"), (413,)),
    ]
    data, statuses = random.choice(kinds)
    return Case([data], any_of(*statuses), "close" if statuses == (413,) else "keep")


def slow(random: random.Random) -> Case:
    data = good(random)
    return Case([data[: random.randrange(2, len(data) - 1)]], any_of(408), "leave")


# -- the body -------------------------------------------------------------------------------------


def texts(random: random.Random) -> Case:
    """Bodies that are not JSON, or JSON of a wrong form."""
    body = json.dumps(random.choice([GOOD, ADD])).encode()
    bad = random.choice(
        [
            b"", b"\x00", b"nonsense", body[: random.randrange(len(body) - 1)], body + b"}",
            b"[" * random.choice([10, 2_000, 200_000]), b'{"a":' * random.choice([10, 20_000]),
            b"\xef\xbb\xbf\xff", b'{"instances": ' + b"9" * 6_000 + b"}", b"[]", b"1", b'"x"',
            b"null", b"{}", b'{"instances": [], "inputs": {}}',
            b'{"instances": ' + b"[" * 500 + b"]" * 500 + b"}",
        ]
    )  # fmt: skip
    return Case([http(PREDICT, bad)], any_of(400))


def values(random: random.Random) -> Case:
    """Values that the signature does not accept."""
    number = random.choice(
        [
            True,
            None,
            "1",
            {},
            {"b64": "AAAA"},
            {"x": 1},
            [],
            [1],
            1e39,
            -1e300,
            10**400,
            "x" * 9_000,
        ]
    )
    row = [0.5] * WIDTH
    row[random.randrange(WIDTH)] = number
    rows = random.choice([[row], [[0.5] * WIDTH, row], [{"x": row}], [[0.5] * WIDTH] * 50 + [row]])
    return Case([http(PREDICT, {"instances": rows})], any_of(400))


def integers(random: random.Random) -> Case:
    bad = random.choice([2**31, -(2**31) - 1, 2**63, 2**64, 10**4000, 1.5, 1e300, True, None, "1"])
    body = {"signature_name": "add", "inputs": {"a": [1, bad], "b": [1, 2]}}
    return Case([http(PREDICT, body)], any_of(400))


def literals(random: random.Random) -> Case:
    """Numbers in various notations. NaN and Infinity are valid, as in TensorFlow Serving."""
    text, status = random.choice(
        [("NaN", 200), ("-Infinity", 200), ("1e999", 400), ("-1e99999999999", 400), ("1e-999", 200),
         ("0x1", 400), ("01", 400), ("+1", 400), ("1.", 400), (".5", 400), ("1e", 400)]
    )  # fmt: skip
    body = f'{{"instances": [[{text}{", 1" * (WIDTH - 1)}]]}}'
    return Case([http(PREDICT, body.encode())], any_of(status))


def shapes(random: random.Random) -> Case:
    bodies: list[Mapping[str, Any]] = [
        {"instances": [[0.5] * random.choice([0, 1, WIDTH - 1, WIDTH + 1, 5_000])]},
        {"instances": [[0.5] * WIDTH, [0.5]]},
        {"instances": [[[0.5] * WIDTH]]},
        {"instances": 0.5},
        {"instances": {"x": 1}},
        {"inputs": [[[[]]]]},
        {"inputs": {"x": [[0.5] * WIDTH], "y": 1}},
        {"inputs": {"X": [[0.5] * WIDTH]}},
        {"inputs": {}},
        {"signature_name": "add", "inputs": {"a": [1, 2], "b": [1]}},
        {"signature_name": "add", "inputs": {"a": [1, 2]}},
        {"signature_name": random.choice(["no", 5, None, ["add"], "x" * 9_000]), **GOOD},
    ]
    return Case([http(PREDICT, random.choice(bodies))], any_of(400))


def examples(random: random.Random) -> Case:
    verb = random.choice(["classify", "regress"])
    body = random.choice(
        [{}, {"examples": []}, {"examples": {}}, {"examples": [1]}, {"examples": [{}]},
         {"examples": [{"x": [1]}]}, {"examples": [{"x": ["a"] * WIDTH}]},
         {"examples": [{"x": [1] * WIDTH}], "context": 5},
         {"examples": [{"x": [10**400] + [1] * (WIDTH - 1)}]}]
    )  # fmt: skip
    return Case([http(f"/v1/models/m:{verb}", body)], any_of(400))


def flipped_body(random: random.Random) -> Case:
    body = flipped(random, json.dumps(random.choice([GOOD, ADD])).encode())
    return Case([http(PREDICT, body)], any_of(200, 400))


def flipped_message(random: random.Random, message: bytes) -> Case:
    head = "content-type: application/x-protobuf\r\n"
    return Case([http(PREDICT, flipped(random, message), head)], any_of(200, 400))


KINDS: tuple[tuple[float, Callable[[random.Random], Case]], ...] = (
    (10, flipped_request), (5, truncated_request), (2, reset), (2, reset_before_the_answer),
    (3, junk), (2, junk_after_a_request), (4, lengths), (4, chunks), (3, heads), (2, upgrades),
    (2, older_http), (2, expect), (4, pipelined), (5, methods_and_paths), (4, encodings),
    (0.5, slow), (6, texts), (8, values), (6, integers), (4, literals), (8, shapes), (5, examples),
    (10, flipped_body),
)  # fmt: skip
"""How often each kind comes, and what makes a case of it."""
