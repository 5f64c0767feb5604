"""`PipelineParallel`: how the stages of a placed program take turns on micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax

from graphc.errors import AttributeValueError

SCHEDULES: Final = ("1f1b", "gpipe")


@dataclass(frozen=True)
class PipelineParallel:
    """Runs the stages that `gc.device` names as a pipeline over the micro-batches of
    `gc.minimize(..., accumulate=m)`.

    A stage is what one device computes. Under "gpipe" (Huang et al. 2019, and without a strategy) a
    stage starts a micro-batch as soon as its operands are there, so the first stage may hold the
    activations of all `m`. Under "1f1b" (Narayanan et al. 2019) it does forward and backward passes
    in turn, and holds at most as many micro-batches as there are stages from it to the last. If all
    stages take equally long, they wait for equally long under both.

    The results are the same as without a strategy, and so is a program on one device.

    Args:
        schedule: "1f1b" or "gpipe".
        recompute: whether a stage keeps only its inputs of each micro-batch, and computes its
            activations again before its backward pass. Random values are the same again.

    Raises:
        AttributeValueError: an argument has an invalid value.

    Examples:
        >>> x = gc.placeholder((None, 4), name="x")
        >>> with gc.device("/cpu:0"):
        ...     hidden = gc.nn.Dense(4, activation="tanh")(x)
        >>> with gc.device("/cpu:1"):
        ...     loss = gc.reduce_mean(gc.square(gc.nn.Dense(1)(hidden)))
        >>> train = gc.minimize(loss, optax.sgd(0.1), accumulate=4, name="train")
        >>> session = gc.Session(graph, strategy=gc.devices.PipelineParallel(recompute=True))
        >>> session.run(train, {x: np.ones((8, 4), "float32")})
    """

    schedule: str = "1f1b"
    recompute: bool = False

    def __post_init__(self) -> None:
        if type(self.schedule) is not str or self.schedule not in SCHEDULES:
            raise AttributeValueError.here(
                f"PipelineParallel: schedule must be '1f1b' or 'gpipe', got {self.schedule!r}",
                hint='gc.devices.PipelineParallel(schedule="1f1b")',
            )
        if type(self.recompute) is not bool:
            raise AttributeValueError.here(
                f"PipelineParallel: recompute must be a bool, got {self.recompute!r}",
                hint="pass True or False",
            )

    @property
    def replicas(self) -> int:
        """How many pieces a batch is split into: 1, since micro-batches run one after the other."""
        return 1

    def resolve(self) -> tuple[jax.Device, ...]:
        """The devices of this process. The graph names those that it uses."""
        return tuple(jax.local_devices())

    def on(self, known: Mapping[str, jax.Device]) -> PipelineParallel:
        """The same strategy on another machine."""
        return self

    def meaning(self) -> dict[str, Any]:
        """The properties on which a compiled program depends."""
        return {"schedule": self.schedule, "recompute": self.recompute}
