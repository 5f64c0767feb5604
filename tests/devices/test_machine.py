"""Records of machines that are not present."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

import graphc as gc
from graphc.devices.machine import model_names
from graphc.devices.topology import target_config
from graphc.errors import AttributeValueError

Machine = gc.devices.Machine


def test_a_count_may_stand_in_the_name_or_beside_it() -> None:
    eight = Machine("h100", 8)
    assert eight == Machine("8xh100") == Machine("8 x H100") and eight.count == 8
    assert str(eight) == "8 x NVIDIA H100 80GB HBM3"
    assert eight.device_names[0] == "/device:GPU:0" and len(eight.device_names) == 8
    assert Machine("h100").count == 1 and Machine("h100") != eight
    assert pickle.loads(pickle.dumps(eight)) == eight and hash(eight) == hash(Machine("8xh100"))


@pytest.mark.parametrize("name", model_names())
def test_each_model_is_complete(name: str) -> None:
    gpu = Machine(name).model
    assert {"f64", "tf32", "f16", "bf16"} <= set(gpu.matrix_flops)
    assert gpu.matrix_flops["bf16"] == gpu.matrix_flops["f16"] > gpu.matrix_flops["tf32"]
    assert 10e9 < gpu.memory < 200e9 and 1e11 < gpu.memory_bandwidth < 1e13
    # A multiply-add counts as two operations: clock times cores gives about the datasheet's number.
    assert gpu.vector_flops == pytest.approx(
        2 * gpu.cores * gpu.fpus_per_core * gpu.clock_ghz * 1e9, rel=0.05
    )


def test_a_file_describes_the_same_machine(tmp_path) -> None:
    machine = Machine("4xa100-80gb")
    path = tmp_path / "machine.toml"
    path.write_text(machine.to_toml())
    assert Machine(path) == machine and Machine(str(path)) == machine
    assert Machine(path, 2).count == 2


@pytest.mark.parametrize(
    "name",
    [
        'a "quoted" name',
        "back\\slash \\n",
        "two\nlines",
        "a line that ends\n",
        "three ''' quotes\nin two lines",
        "tabs\tand\r\nreturns\x00\x07\x1b\x7f\x85\u2028",
        "",
        "Umläute 图 \U0001f600",
        "[gpu]\nname = 1",
    ],
)
def test_odd_names_are_read_as_they_were_written(name: str, tmp_path: Path) -> None:
    gpu = replace(Machine("l4").model, name=name, matrix_flops={"b f": 1e12, 'q"': 2.5})
    path = tmp_path / "machine.toml"
    path.write_text(Machine.of(gpu, 3).to_toml(), encoding="utf-8", newline="")
    again = Machine(path)
    assert again.model == gpu and again.model.matrix_flops == gpu.matrix_flops
    assert again.count == 3


def test_a_name_that_no_file_can_hold_is_refused() -> None:
    gpu = replace(Machine("l4").model, name="half a pair \ud83d")
    with pytest.raises(AttributeValueError, match=r"cannot be written to a file: surrogates"):
        Machine.of(gpu).to_toml()


def test_text_of_xla_in_a_file_is_kept_as_it_is(tmp_path) -> None:
    path = tmp_path / "machine.toml"
    text = target_config(Machine("h100").model).replace("{ ", "{\n  ") + "\n"
    table = Machine("h100").to_toml() + f"target_config = '''\n{text}'''\n"
    path.write_text(table)
    machine = Machine(path)
    assert target_config(machine.model) == text
    path.write_text(machine.to_toml())
    assert Machine(path) == machine


def test_the_description_for_xla_has_what_the_record_says() -> None:
    text = target_config(Machine("h100").model)
    assert "core_count: 132" in text and 'device_description_str: "NVIDIA H100 80GB HBM3"' in text
    assert "major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES" in text
    assert "feature_extension" not in target_config(Machine("l4").model)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("h10",), "did you mean 'h100'"),
        (("",), "not the name of a GPU"),
        ((3,), "not the name of a GPU"),
        (("0xh100",), "0 is not a number"),
        (("h100", 0), "0 is not a number"),
        (("1" * 5000 + "xh100",), "no GPU"),
        (("a\0b.toml",), "cannot be read"),
        (("h100", True), "True is not a number"),
        (("h100", 10**6), "is not a number"),
        (("8xh100", 4), "means 8 GPUs, but count is 4"),
        (("missing.toml",), "cannot be read"),
    ],
)
def test_wrong_machines_are_refused(given, says: str) -> None:
    with pytest.raises(AttributeValueError, match=says):
        Machine(*given)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("[gpu]", "[cpu]"), "no table"),
        (("count = 1", "count = 0"), "count = 0"),
        (("cores = 132\n", ""), "'cores' is missing"),
        (("cores = 132", "cores = -1"), "not a positive number"),
        (("cores = 132", 'cores = "132"'), "not a positive number"),
        (("cores = 132", "cores = 132\ncorse = 1"), "unknown field 'corse'; did you mean"),
        (('"9.0a"', '"nine"'), "compute_capability"),
        (("f64 = ", "f64 = -"), "matrix_flops"),
        (("[gpu]", "[gpu"), "cannot be read"),
        (("[gpu]", "[gpu]\ntarget_config = ' '"), "target_config has no threads_per_block_limit"),
    ],
)
def test_files_that_describe_no_machine_are_refused(tmp_path, change, says: str) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(Machine("h100").to_toml().replace(*change))
    with pytest.raises(AttributeValueError, match=says):
        Machine(path)


@pytest.mark.parametrize(("model", "count"), [("h100", 1), (Machine("h100").model, 0)])
def test_a_machine_of_a_model_is_checked_too(model, count: int) -> None:
    with pytest.raises(AttributeValueError, match="Machine: "):
        Machine.of(model, count)


def test_the_part_of_the_memory_is_a_part() -> None:
    for wrong in (0, 1.5, "0.5"):
        with pytest.raises(AttributeValueError, match="memory_fraction"):
            Machine("h100", memory_fraction=wrong)
