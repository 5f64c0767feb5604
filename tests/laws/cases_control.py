"""Cases of graphc/ops/control/scan.py."""

from __future__ import annotations

import numpy as np

from graphc.errors import AttributeValueError, DTypeError, GraphcError, ShapeError
from graphc.ops.control.scan import map_fn, scan
from graphc.ops.core.emit import cast
from graphc.ops.elementwise.transcendental import tanh
from graphc.ops.matrices.matrix_product import matmul
from tests.laws.case import Bad, Case, In


def recurrent(w, h0, xs):
    """A recurrent network over time-major xs: weights and state both have gradients."""

    def body(h, x):
        h = tanh(matmul(h, w) + x)
        return h, h * 2.0

    return scan(body, h0, xs)


def recurrent_oracle(w, h, xs):
    ys = []
    for x in xs:
        h = np.tanh(h @ w + x)
        ys.append(2 * h)
    return h, np.stack(ys)


def backwards(xs):
    """A running sum from the end, with nested carries."""
    (total, count), ys = scan(
        lambda c, x: ((c[0] + x, c[1] + 1), c[0]), (xs[0] * 0.0, 0), xs, reverse=True
    )
    return total, count, ys


def backwards_oracle(xs):
    before = np.cumsum(xs[::-1], 0)[::-1] - xs
    return xs.sum(0), np.int32(len(xs)), before


def nested(m, x):
    """A scan in a scan: powers of a matrix, row by row."""

    def outer(total, row):
        value, _ = scan(lambda c, r: (c + r * row, None), total, m)
        return value, value

    return scan(outer, x, m)


def nested_oracle(m, x):
    total, out = x, []
    for row in m:
        for r in m:
            total = total + r * row
        out.append(total)
    return total, np.stack(out)


def unrolled(turns):
    """The recurrent network with several iterations unrolled; 5 iterations are no multiple."""
    return lambda w, h, xs: scan(
        lambda h, x: (tanh(matmul(h, w) + x), h * 2.0), h, xs, unroll=turns
    )


def unrolled_oracle(w, h, xs):
    ys = []
    for x in xs:
        ys.append(2 * h)
        h = np.tanh(h @ w + x)
    return h, np.stack(ys)


def no_pair(x):
    return scan(lambda c, t: c + t, x[0], x)


def changing(x):
    return scan(lambda c, t: (x, None), x[0], x)


def widening(x):
    return scan(lambda c, t: (cast(c, "float64"), None), x[0], x)


CASES = (
    Case(
        "Scan",
        recurrent,
        [In((3, 3)), In((4, 3), batch_axis=0), In((5, 4, 3), batch_axis=1)],
        recurrent_oracle,
        bad=[
            Bad(no_pair, [In((4, 2), "float32")], AttributeValueError, r"must return \(carry, y\)"),
            Bad(changing, [In((4, 2), "float32")], ShapeError, "carry 0 is .* before the body"),
            Bad(widening, [In((4, 2), "float32")], DTypeError, "carry 0 is .* before the body"),
            Bad(
                lambda a, b: scan(lambda c, x: (c, None), 0.0, (a, b)),
                [In((4, 2), "float32"), In((5, 2), "float32")],
                ShapeError,
                "lengths of xs differ, 5 and 4",
            ),
            Bad(lambda: scan(lambda c, x: (c, x), 0.0), [], AttributeValueError, "give length="),
            Bad(
                lambda a: scan(lambda c, x: ((c, c), None), a, a),
                [In((4,), "float32")],
                GraphcError,
                "before the body and .* after it",
            ),
            *(
                Bad(
                    lambda a, turns=turns: scan(lambda c, x: (c, x), 0.0, a, unroll=turns),
                    [In((4,), "float32")],
                    AttributeValueError,
                    f"unroll must be the number of iterations .* at least 1, got {turns}",
                )
                for turns in (0, -1, 2.0, True)
            ),
        ],
    ),
    Case("Scan", backwards, [In((5, 4), batch_axis=1)], backwards_oracle, label="reverse"),
    Case("Scan", backwards, [In((4, 3), batch_axis=0)], backwards_oracle, label="over the batch"),
    *(
        Case(
            "Scan",
            unrolled(turns),
            [In((3, 3)), In((4, 3), batch_axis=0), In((5, 4, 3), batch_axis=1)],
            unrolled_oracle,
            label=f"{turns} turns at once",
        )
        for turns in (2, 5, 8)
    ),
    Case("Scan", nested, [In((3, 2)), In((2,))], nested_oracle, label="nested"),
    Case(
        "Scan",
        lambda w, xs: map_fn(lambda x: (matmul(x, w), tanh(x)), xs),
        [In((3, 3)), In((5, 4, 3), batch_axis=1)],
        lambda w, xs: (xs @ w, np.tanh(xs)),
        label="map_fn",
    ),
)
