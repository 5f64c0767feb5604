"""Writes the files in `archives`, and what PyTorch computes for them. Needs torch.

    python -m tests.importers.torch.make_archives

Paths of this machine in the stack traces are shortened.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).parent / "archives"
_OWN = re.compile(rb"[^\" ]*/tests/importers/torch/")
_PACKAGES = re.compile(rb"[^\" ]*/site-packages/")
BATCH = torch.export.Dim("batch", min=2, max=64)


class Train(nn.Module):
    """In training mode: batch norm changes buffers. A branch, a constant, bfloat16, a nest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((2,), 1.5))

    def forward(self, x: Any) -> Any:
        y = nn.functional.relu(self.norm(self.conv(x)), inplace=True).mean((2, 3))
        y = self.head(y) + torch.tensor([3.0, 4.0])
        y = torch.cond(y.sum() > 0, lambda y: y + 1, lambda y: y * 2, (y,))
        return {"a": y * self.scale.to(torch.bfloat16), "b": [x.shape[0], x.flatten(1)]}


class Dtypes(nn.Module):
    """Weights of many dtypes, tied, strided and sharing their bytes."""

    def __init__(self) -> None:
        super().__init__()
        names = (
            *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16"),
            *("float64", "complex64"),
        )
        for i, name in enumerate(names):
            value = (torch.arange(4) - i % 3).abs().to(getattr(torch, name))
            self.register_buffer(f"of_{name}", value)
        whole = torch.arange(12.0).reshape(3, 4)
        self.whole = nn.Parameter(whole)
        self.tied = self.whole
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
        self.register_buffer("part", torch.arange(20.0)[4:8])
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("fleeting", torch.tensor(2.5), persistent=False)

    def forward(self, x: Any) -> Any:
        real = sum(
            getattr(self, name).real.float() for name, _ in self.named_buffers() if "of_" in name
        )
        rows = self.whole + self.tied + self.turned.sum() + self.part
        return x * real * self.fleeting, rows, self.turned, self.of_bfloat16, self.empty.sum()


class Loops(nn.Module):
    """A loop, a scan, and a part without gradients."""

    def forward(self, x: Any) -> Any:
        (i, y) = torch.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)
        )
        last, all_ = torch._higher_order_ops.scan(
            lambda c, row: (c + row, c * row), torch.zeros(3), x
        )
        with torch.no_grad():
            z = x + 1
            z.mul_(3)
        z += 1
        return i, y, last, all_, z


class Views(nn.Module):
    """Changes of tensors and of views of them; a buffer with a part that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: Any) -> Any:
        y = x * 2
        row, column = y[0], y[:, 1]
        row += 10
        column *= 2
        y.t().view(2, 2, 3)[1].clamp_(max=6)
        left, right = y.split(2, 1)
        y.sub_(1)
        self.cache[1:, ::2] = x[1:, ::2]
        self.cache.add_(1)
        flat = y.transpose(0, 1).reshape(-1)
        flat[2] = -1.0
        return y, row, column, left, right, self.cache.clone(), flat


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 5, bias=False)

    def forward(self, x: Any) -> Any:
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y)
        return z, last, h, c


def made() -> dict[str, tuple[nn.Module, Any, Any]]:
    """Name -> module, input, dynamic shapes."""
    torch.manual_seed(0)
    return {
        "train": (Train(), torch.randn(3, 2, 6, 6), ({0: BATCH},)),
        "dtypes": (Dtypes(), torch.randn(4), None),
        "loops": (Loops(), torch.randn(4, 3), None),
        "views": (Views(), torch.randn(3, 4), None),
        "recurrent": (Recurrent(), torch.randn(2, 5, 3), None),
    }


def shortened(data: bytes) -> bytes:
    """The file without paths of this machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.infolist():
            text = old.read(member)
            if member.filename.endswith(".json"):
                text = _PACKAGES.sub(b"site-packages/", _OWN.sub(b"tests/importers/torch/", text))
            info = zipfile.ZipInfo(member.filename)
            new.writestr(info, text)
    return buffer.getvalue()


def main() -> None:
    warnings.simplefilter("ignore")
    HERE.mkdir(exist_ok=True)
    for name, (module, x, shapes) in made().items():
        program = torch.export.export(module, (x,), dynamic_shapes=shapes)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        data = shortened(buffer.getvalue())
        (HERE / f"{name}.pt2").write_bytes(data)
        with torch.no_grad():
            found = torch.utils._pytree.tree_flatten(module(x))[0]
        results = [
            np.asarray(v.float() if v.dtype == torch.bfloat16 else v)
            if isinstance(v, torch.Tensor)
            else np.asarray(v)
            for v in found
        ]
        after = {
            f"after {n}": b.numpy() for n, b in module.named_buffers() if name in ("train", "views")
        }
        arrays = {f"output_{i}": v for i, v in enumerate(results)}
        np.savez(HERE / f"{name}.npz", x=x.numpy(), **arrays, **after)
        sys.stdout.write(f"{name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main()
