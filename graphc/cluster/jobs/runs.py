"""`RunFolder`: the folder of one run of a job, and the command that runs in it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from graphc.cluster.jobs.program import command as _command
from graphc.cluster.jobs.records import Record
from graphc.cluster.jobs.spec import JobSpec

TOKEN: Final = "GRAPHC_JOB_RUN"
"""The variable by which the processes of a run are found, wherever they have gone."""

_SECRETS: Final = frozenset({"GRAPHC_TOKEN"})


class Places(NamedTuple):
    """The folders that a job finds in its environment.

    Attributes:
        checkpoints: where it finds and writes its checkpoints: GRAPHC_CHECKPOINT_DIR.
        logs: where it writes log.csv, log.jsonl and TensorBoard's files: GRAPHC_LOG_DIR.
        outputs: for all else that it writes: GRAPHC_OUTPUT_DIR.
    """

    checkpoints: PurePath
    logs: PurePath
    outputs: PurePath

    @staticmethod
    def below(folder: PurePath) -> Places:
        """The folders of a run.

        Examples:
            >>> from pathlib import PurePosixPath
            >>> from graphc.cluster.jobs.runs import Places
            >>> Places.below(PurePosixPath("/run")).environment["GRAPHC_LOG_DIR"]
            '/run/logs'
        """
        return Places(folder / "checkpoints", folder / "logs", folder / "outputs")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name them."""
        names = ("GRAPHC_CHECKPOINT_DIR", "GRAPHC_LOG_DIR", "GRAPHC_OUTPUT_DIR")
        return dict(zip(names, map(str, self), strict=True))


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run of a job. A resumed job has the same one, a restarted job another.

    Examples:
        >>> from pathlib import Path
        >>> from graphc.cluster.jobs.runs import RunFolder
        >>> RunFolder(Path("queue"), 3, 1).log.as_posix()
        'queue/jobs/3/run-1/log.txt'
    """

    queue: Path
    job: int
    run: int

    @staticmethod
    def of(queue: Path, record: Record) -> RunFolder:
        """The folder of the present run of a job."""
        return RunFolder(queue, record.id, record.run)

    @property
    def path(self) -> Path:
        """The folder itself."""
        return self.queue / "jobs" / str(self.job) / f"run-{self.run}"

    @property
    def log(self) -> Path:
        """What the job has written to standard output and standard error."""
        return self.path / "log.txt"

    @property
    def places(self) -> Places:
        """The folders that the job finds in its environment."""
        return Places.below(self.path)

    def make(self) -> None:
        """Creates the folders. Other users of the machine have no access."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self.places:
            Path(folder).mkdir(exist_ok=True)

    def environment(self, token: str, gpus: str, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of the job.

        Args:
            token: the value of `TOKEN`.
            gpus: the numbers of its GPUs, or "" on a machine without GPUs.
            base: the environment of the service.
        """
        found = {name: value for name, value in base.items() if name not in _SECRETS}
        found |= {TOKEN: token, "GRAPHC_JOB": str(self.job), **self.places.environment}
        if gpus:
            found["CUDA_VISIBLE_DEVICES"] = gpus
        return found

    def command(self, spec: JobSpec, program: Path, inputs: Mapping[str, Path]) -> list[str]:
        """The command that runs a job here: `graphc launch` with its script.

        Args:
            program, inputs: the files, where they are on this machine.
        """
        script, arguments = str(program), spec.command_arguments
        if spec.kind != "script":
            script = _command.__file__
            arguments = graphc_command(spec, program, inputs, self.places)
        found = [
            *(sys.executable, "-m", "graphc", "launch"),
            *("-n", str(spec.processes), "--devices", str(spec.devices)),
            *("--restarts", str(spec.restarts), "--grace", repr(spec.grace)),
        ]
        if spec.silence is not None:
            found += ["--silence", repr(spec.silence)]
        return [*found, script, "--", *arguments]


def graphc_command(
    spec: JobSpec, program: PurePath, inputs: Mapping[str, PurePath], places: Places
) -> list[str]:
    """The command of graphc for a "train" or an "artifact" job."""
    if spec.kind == "train":
        saving = ["--save", str(places.outputs / "model.gcx")] if spec.save else []
        return [
            *("train", str(program), "--devices", str(spec.devices), "--no-progress"),
            *("--checkpoint-dir", str(places.checkpoints), "--resume"),
            *("--log-dir", str(places.logs), *saving, "--", *spec.command_arguments),
        ]
    found = ["run", str(program), "--output", str(places.outputs / "results.npz")]
    if spec.signature is not None:
        found += [f"--signature={spec.signature}"]
    for name, path in inputs.items():
        found += ["--input", f"{name}={path}"]
    return found
