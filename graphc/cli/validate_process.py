"""The other side of `graphc export --validate`: runs an artifact without access to the graph.

    python -m graphc.cli.validate_process ARTIFACT FOLDER

It reads the inputs of each signature from FOLDER, and writes its outputs and `facts.json` there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from graphc.artifacts import EntryPoint, Model, load
from graphc.artifacts.loading import read
from graphc.cli.arrays import write_arrays
from graphc.cli.targets import ask_for_devices
from graphc.cli.timing import timed


def main(path: str, folder: Path) -> None:
    """Runs every signature."""
    manifest, _ = read(path)
    ask_for_devices(max(entry.devices for entry in manifest.signatures.values()))
    model = load(path)
    facts = {name: _run(model, point, folder) for name, point in model.signatures.items()}
    text = json.dumps({"graphc": manifest.graphc, "signatures": facts})
    (folder / "facts.json").write_text(text)


def _run(model: Model, point: EntryPoint, folder: Path) -> dict[str, Any]:
    """Runs one signature: returns its outputs from the saved state, and the times of more runs."""
    with np.load(folder / f"{point.name}.in.npz") as found:
        inputs = {argument: found[f"{i}"] for i, argument in enumerate(point.inputs)}
    state = model.state()

    def run() -> Any:
        nonlocal state
        if not point.updates_state:
            return point.on_numbers(state, inputs)
        outputs, state = point.on_numbers(state, inputs)
        return outputs or next(iter(state.values()), None)

    outputs = run() if point.outputs or not point.updates_state else {}
    arrays = [np.asarray(outputs[name]) for name in point.outputs]
    write_arrays(folder / f"{point.name}.out.npz", arrays)
    seconds = timed(run)
    about = {"way": point.way, "notes": point.notes}
    return {"about": about, "outputs": list(point.outputs), "seconds": seconds}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
