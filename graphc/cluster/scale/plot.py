"""The picture of predictions: rows a second and memory, by the number of devices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.cluster.scale.hardware import Hardware
from graphc.cluster.scale.schedule import Prediction
from graphc.errors import ArtifactError, MissingExtraError


def plot_scaling(
    path: str | os.PathLike[str],
    name: str,
    hardware: Hardware,
    plain: Mapping[str, Sequence[Prediction]],
    best: Mapping[int, Prediction],
) -> None:
    """Writes the picture; the ending of `path` decides the format.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ArtifactError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            "a plot needs Matplotlib, which is not installed",
            hint="pip install 'graphc[plot]'",
        ) from None
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    speed, memory = figure.subplots(1, 2)
    lines = {**plain, "best that fits": list(best.values())}
    for number, (label, found) in enumerate(lines.items()):
        style = {"color": "black", "ls": "--"} if label.startswith("best") else {}
        style["marker"] = "osD^vx"[number % 6]
        counts = [prediction.split.devices for prediction in found]
        rate = [prediction.rows / prediction.seconds for prediction in found]
        speed.plot(counts, rate, label=label, ms=4, lw=1.2, **style)
        used = [prediction.memory / 1e9 for prediction in found]
        memory.plot(counts, used, label=label, ms=4, lw=1.2, **style)
    _ideal(speed, lines)
    memory.axhline(hardware.memory / 1e9, color="firebrick", lw=1, label="memory of a device")
    for axes, title in ((speed, "rows a second"), (memory, "GB on each device")):
        axes.set(xlabel="devices", ylabel=title, yscale="log")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(f"{name} on {hardware.name}, predicted")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"cannot write {os.fspath(path)!r}: {error}", hint="give a file such as scaling.png"
        ) from None


def _ideal(axes: Any, lines: Mapping[str, Sequence[Prediction]]) -> None:
    """The line of perfect scaling."""
    found = [prediction for predictions in lines.values() for prediction in predictions]
    if not found:
        return
    first = found[0]
    each = first.rows / first.seconds / first.efficiency / first.split.devices
    counts = sorted({prediction.split.devices for prediction in found})
    axes.plot(counts, [each * n for n in counts], color="gray", lw=1, ls=":", label="ideal")
