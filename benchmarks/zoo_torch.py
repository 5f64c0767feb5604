"""Architectures of torchvision, timm and transformers, imported by `gc.from_torch`.

    python -m benchmarks.zoo_torch --out build/zoo_torch.json [--only REGEX] [--failed] [--steps]

Each is made with random weights, in a small configuration, exported by torch.export, imported, and
run in float32 on the same input; the error is the largest difference divided by the largest result.
With --steps, also ten steps of AdamW in float64 in both. Results are kept in a JSON file after each
model; a second call goes on. Needs torch, torchvision, timm and transformers.
"""

from __future__ import annotations

import argparse
import gc as garbage
import json
import os
import re
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # much is compiled, little is run

import numpy as np

from benchmarks.zoo_torch_models import Maker, timm_models, torchvision_models
from benchmarks.zoo_torch_transformers import transformers_models

LIMIT = 300  # seconds for one model
LARGEST = 100_000_000  # parameters
MEMORY = 10 << 30  # bytes of address space: some configurations have huge parts that stay
NOT_REACHED = "not reached"
CLOSE = 1e-5
CLOSE_STEPS = 1e-9
SEED = 0


def made(make: Maker) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model for evaluation and its arguments. Parameters that start as constants get noise.

    Zeros hide what is multiplied by them, and equal scores of experts have no order.
    """
    import torch

    torch.manual_seed(SEED)
    model, args, kwargs = make()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(0.02 * torch.randn(parameter.shape, dtype=parameter.dtype))
    return model.eval(), args, kwargs


def forward(make: Maker, largest: int) -> str:
    """ "ok", "no export: ..." if PyTorch itself cannot, or what is wrong."""
    import torch

    try:
        model, args, kwargs = made(make)
        size = sum(p.numel() for p in model.parameters())
        if size > largest:
            return f"skipped: {size / 1e6:.0f} million parameters"
        with torch.no_grad():
            want = leaves(model(*args, **kwargs))
    except Exception as error:
        return f"skipped: {_said(error, 100)}"
    try:
        program = torch.export.export(model, args, kwargs, strict=False)
    except Exception as error:
        return f"no export: {_said(error, 100)}"
    worst = error_of(program, args, kwargs, want)
    if worst <= CLOSE:
        return "ok"
    try:
        exact = error_in_float64(make)
    except Exception:  # PyTorch has no such operator for float64, or the model none
        exact = float("nan")
    if exact <= CLOSE_STEPS:
        return f"rounding: error {worst:.1e} in float32, {exact:.1e} in float64"
    return f"error {worst:.1e}, in float64 {exact:.1e}"


def error_of(program: Any, args: Any, kwargs: Any, want: Any) -> float:
    """The largest error of the results of an exported program.

    Raises:
        ValueError: a result has another shape.
    """
    worst = 0.0
    for a, b in zip(imported(program, args, kwargs), want, strict=True):
        b = b.detach().numpy()
        if a.shape != b.shape:
            raise ValueError(f"the shape {a.shape} in place of {b.shape}")
        worst = max(worst, distance(a, b))
    return worst


def error_in_float64(make: Maker) -> float:
    """The error in float64: large if a rule is wrong, small if only rounding differs."""
    import torch

    model, args, kwargs = in_float64(make)
    with torch.no_grad(), wide():
        want = leaves(model(*args, **kwargs))
        program = torch.export.export(model, args, kwargs, strict=False)
    return error_of(program, args, kwargs, want)


def wide() -> Any:
    """A context in which models that cast a part to float32 cast it to float64."""
    import torch

    narrow = {torch.float32: torch.float64, torch.Tensor.float: torch.Tensor.double}

    class Wide(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            args = tuple(_widened(arg, narrow) for arg in args)
            kwargs = {key: _widened(arg, narrow) for key, arg in (kwargs or {}).items()}
            return narrow.get(func, func)(*args, **kwargs)

    return Wide()


def _widened(value: Any, narrow: Mapping[Any, Any]) -> Any:
    return narrow.get(value, value) if type(value).__name__ == "dtype" else value


def in_float64(make: Maker) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model and its arguments in float64."""
    model, args, kwargs = made(make)
    if hasattr(model, "set_experts_implementation"):  # grouped_mm has no float64
        model.set_experts_implementation("batched_mm")
    return model.double(), tuple(map(_double, args)), {k: _double(v) for k, v in kwargs.items()}


def imported(program: Any, args: Any, kwargs: Any) -> list[np.ndarray]:
    """The results of an exported program, by graphc."""
    import graphc as gc

    alone = gc.from_torch(program).to_graph()
    flat = [t.numpy() for t in leaves([*args, kwargs])]
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        feeds = dict(zip(alone.inputs.values(), flat, strict=True))
        return [np.asarray(r) for r in session.run(list(alone.outputs.values()), feeds)]


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference divided by the largest value; the same infinities are equal."""
    if not want.size:
        return 0.0
    a, b = got.astype(np.complex128), want.astype(np.complex128)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    away = np.abs(np.where(same, 0, a) - np.where(same, 0, b)).max()
    finite = np.abs(b[np.isfinite(b)]).max(initial=0)
    return float(away / max(finite, 1e-6)) if np.isfinite(away) else float("inf")


def trained(make: Maker, largest: int) -> str:
    """Ten steps of AdamW in float64, by both: "trained" if the parameters agree."""
    import torch

    try:
        model, args, kwargs = in_float64(make)
        if sum(p.numel() for p in model.parameters()) > largest:
            return ""
        with wide():
            _loss(model, args, kwargs).backward()
            program = torch.export.export(model, args, kwargs, strict=False)
    except Exception as error:
        return f"not trained: PyTorch in float64: {_said(error, 100)}"
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    got = imported_steps(program, args, kwargs)
    want = torch_steps(model, args, kwargs)
    errors = {name: distance(got[name], want[name]) for name in got if name in want}
    where = max(errors, key=lambda name: errors[name])
    if errors[where] <= CLOSE_STEPS:
        return "trained"
    own = distance(steps_from_other_bits(model, start, args, kwargs)[where], want[where])
    return (
        f"trained with error {errors[where]:.1e} of {where}; PyTorch against itself, from "
        f"parameters that differ in the last bit: {own:.1e}"
    )


def imported_steps(program: Any, args: Any, kwargs: Any) -> dict[str, np.ndarray]:
    """The parameters after ten steps of AdamW, by graphc."""
    import optax

    import graphc as gc

    alone = gc.from_torch(program).to_graph()
    flat = [t.numpy() for t in leaves([*args, kwargs])]
    with alone.graph:
        results = [t for t in alone.outputs.values() if t.dtype.kind == "f"]
        loss = gc.add_n([gc.reduce_mean(gc.square(t)) for t in results])
        train = gc.minimize(loss, optax.adamw(1e-3, weight_decay=0.01))
    with gc.Session(alone.graph, unused_feeds="ignore") as session:
        feeds = dict(zip(alone.inputs.values(), flat, strict=True))
        for _ in range(10):
            session.run(train, feeds)
        return {name: np.asarray(session.get(v)) for name, v in alone.variables.items()}


def torch_steps(model: Any, args: Any, kwargs: Any) -> dict[str, np.ndarray]:
    """The parameters that have gradients after ten steps of AdamW, by PyTorch."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        with wide():
            _loss(model, args, kwargs).backward()
        optimizer.step()
    pairs = model.named_parameters()
    return {name: p.detach().numpy().copy() for name, p in pairs if p.grad is not None}


def steps_from_other_bits(model: Any, start: Any, args: Any, kwargs: Any) -> dict[str, np.ndarray]:
    """`torch_steps` from parameters that differ in their last bit.

    AdamW divides each gradient by its size, so a gradient that is nearly zero, such as that of the
    bias of keys, which the softmax cancels, moves its parameter as far as its rounding says.
    """
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            signs = torch.randint(-1, 2, parameter.shape, dtype=parameter.dtype)
            parameter.copy_(start[name] * (1 + signs * 2.0**-52))
    return torch_steps(model, args, kwargs)


def _loss(model: Any, args: Any, kwargs: Any) -> Any:
    results = [t for t in leaves(model(*args, **kwargs)) if t.is_floating_point()]
    return sum(t.square().mean() for t in results)


def _double(value: Any) -> Any:
    floating = hasattr(value, "is_floating_point") and value.is_floating_point()
    return value.double() if floating else value


def _said(error: BaseException, limit: int) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:limit]}"


def leaves(value: Any) -> list[Any]:
    """The tensors of a nest."""
    import torch

    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def result(make: Maker, done: str, options: argparse.Namespace) -> str:
    """What is written for a model, of which `done` is known."""
    signal.alarm(options.limit)
    try:
        if done != "ok":
            done = forward(make, options.largest)
        if options.steps and done == "ok":
            word = trained(make, options.steps_below)
            return f"ok, {word}" if word else "ok"
        return done
    except Exception as error:  # the table shows it
        return f"ok, {_said(error, 300)}" if done == "ok" else _said(error, 300)
    finally:
        signal.alarm(0)


def wanted(name: str, done: str, options: argparse.Namespace) -> bool:
    """Whether a model has to be tried (again)."""
    if not re.search(options.only, name):
        return False
    if done == NOT_REACHED:
        return True
    failed = done.startswith("ok,") if options.steps else not done.startswith(_FINAL)
    if options.failed and failed and done != "ok, trained":
        return True
    return options.steps and done == "ok"


_FINAL = ("ok", "no export", "skipped", "rounding")


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/zoo_torch.json"))
    parser.add_argument("--only", default="", help="a regular expression that names match")
    parser.add_argument("--failed", action="store_true", help="again those that failed")
    parser.add_argument("--steps", action="store_true", help="train those that agree")
    parser.add_argument("--steps-below", type=int, default=5_000_000, metavar="PARAMETERS")
    parser.add_argument("--largest", type=int, default=LARGEST, metavar="PARAMETERS")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="SECONDS")
    return parser.parse_args(arguments)


def main() -> None:
    options = options_of()
    warnings.simplefilter("ignore")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sources = (torchvision_models, timm_models, transformers_models)
    makers = {name: make for source in sources for name, make in source()}
    found = {name: found.get(name, NOT_REACHED) for name in makers}
    for name, make in makers.items():
        if not wanted(name, found[name], options):
            continue
        begin = time.monotonic()
        garbage.disable()  # a third of the time of torch.export
        found[name] = result(make, found[name], options)
        garbage.enable()
        garbage.collect()
        print(f"{name:<60} {time.monotonic() - begin:6.1f} s  {found[name][:120]}", flush=True)
        options.out.write_text(json.dumps(found, indent=1))
    print(Counter(v.split(":")[0].split(" ")[0] for v in found.values()))


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError("more than the limit of seconds")


if __name__ == "__main__":
    main()
