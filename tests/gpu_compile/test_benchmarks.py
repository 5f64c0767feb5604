"""The benchmark of compiled programs, on tiny models."""

import pytest

from benchmarks import gpu_hlo, gpu_models, transformer

MODELS = {
    "lstm": lambda: gpu_models.lstm(8, layers=1, units=32, length=8),
    "dlrm": lambda: gpu_models.dlrm(16, tables=2, rows=1000, width=8),
    "vit": lambda: gpu_models.vit(8, blocks=2, width=64, heads=2, size=64),
}


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("name", MODELS)
def test_both_forms_compute_the_same_products(name: str, count: int) -> None:
    made = gpu_hlo.models(MODELS[name](), count)
    ours, theirs = (form.cost.matrix_flops["bf16"] for form in made.values())
    assert ours == pytest.approx(theirs, rel=0.15)
    (row,) = gpu_hlo.compared("tiny", count, made)
    assert "roofline" in row[1] and ("all-reduces" in row[1]) == (count > 1)


@pytest.mark.parametrize("count", [1, 8])
def test_a_transformer_in_all_forms(count: int) -> None:
    size = transformer.Size(2, 128, 2, 128, 2 * count)
    made = gpu_hlo.transformers(size, count)
    assert [form.cost.kernels > 0 for form in made.values()] == [True] * 4
