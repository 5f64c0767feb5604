"""Sparse updates preserve the results of generated programs that update tables by rows."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.ir.program import Program
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from graphc.passes.core.validate import check_meaning
from graphc.passes.simplify.eliminate_common import EliminateCommon
from graphc.passes.simplify.prune import Prune
from graphc.passes.simplify.simplify_algebra import SimplifyAlgebra
from graphc.passes.sparse.sparse_gradients import SparseGradients
from tests.passes.evaluate import evaluate
from tests.passes.generate_sparse import ROWS, sparse_programs

ALWAYS = SparseGradients(fewest=0, smallest=0)
EXAMPLES = 300  # for manual runs: thousands


def test_updating_by_rows_preserves_meaning() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(before=sparse_programs(), tidy=st.booleans(), seed=st.integers(0, 3))
    def run(before: Program, tidy: bool, seed: int) -> None:
        for a_pass in (Prune(), SimplifyAlgebra(), EliminateCommon(), Prune()) if tidy else ():
            before = a_pass.run(before).program
        after, changed = ALWAYS.run(before)
        assert (after is before) == (changed == 0)
        verify(after, "functional")
        wrong = check_meaning(before, after, evaluate, seed)
        assert wrong is None, f"{wrong}\n{print_program(before)}\n{print_program(after)}"
        again = ALWAYS.run(after)
        assert again.changed == 0, "it finds something in what it has made"
        for node in after.nodes:
            seen[
                node.op.name if node.op.name != "ScatterNd" else f"{node.op.name} {bool(changed)}"
            ] += 1
            if node.op.name == "ReduceSum" and node.inputs[0].type.shape[0] != ROWS:
                seen["a sum over rows"] += 1

    run()
    assert seen["ScatterNd True"] > EXAMPLES // 4, seen
    assert seen["UniqueRows"] > EXAMPLES // 10, seen
    assert seen["a sum over rows"], seen
