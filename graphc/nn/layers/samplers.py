"""`UnigramSampler`: a candidate sampler that learns how frequent the classes are."""

from __future__ import annotations

from typing import Any

from graphc.build.initializer_names import AnyInitializer, as_initializer
from graphc.ir.dtypes import FLOAT32
from graphc.ir.node import Tensor
from graphc.nn.functional.sampled_losses import Candidates, check_samples, sampled
from graphc.nn.layers.intervals import POSITIVE, within
from graphc.nn.layers.layer import Layer, check_training
from graphc.nn.layers.normalization import update_in_training
from graphc.ops.arrays.indexing import take_for
from graphc.ops.core.emit import to_dtype
from graphc.ops.core.operands import as_integers
from graphc.ops.core.ranges import in_range
from graphc.ops.draws.location_scale import uniform
from graphc.ops.elementwise.powers import power
from graphc.ops.numpy_api.searching import bincount, searchsorted
from graphc.ops.reductions.axiswise import cumsum
from graphc.ops.reductions.reduction import reduce_sum
from graphc.typing import Seed, TensorLike

__all__ = ["UnigramSampler"]


class UnigramSampler(Layer):
    """Draws classes in proportion to how often they have been labels, for `nce_loss` and the like.

    In training, the layer counts the labels. As with `BatchNorm`, the assignment is in the
    collection "updates"; a step of `gc.minimize` runs it if its loss depends on the draws. The
    draws of a step use the counts before it.

    Variables: `counts` i32[classes], which is not trainable.

    Args:
        classes: how many classes there are.
        samples: how many classes to draw.
        unique: whether no class is drawn twice; see `log_uniform_candidate_sampler`.
        distortion: the probabilities are proportional to the counts raised to this power. Mikolov
            et al. use 0.75.
        counts: the initial counts: an array [classes] of positive integers, such as the
            frequencies in the training data, or an initializer; by default ones.
        seed: see `gc.random.random_key`.
        name: see `Layer`.

    Calling it takes `labels`, integers of any shape in [0, classes), and `training`, a bool or a
    scalar tensor of bool. It gives the `Candidates`.

    Raises:
        AttributeValueError: numbers that are not positive, more samples than unique classes, or
            `training` is not a bool.
        DTypeError: labels that are not integers.

    Source: TensorFlow's `random.learned_unigram_candidate_sampler` and
    `random.fixed_unigram_candidate_sampler`; Mikolov et al., "Distributed representations of words
    and phrases", 2013.

    Examples:
        >>> sampler = gc.nn.UnigramSampler(classes=10, samples=3)
        >>> drawn = sampler([[1], [4]], training=True)
        >>> loss = gc.nn.nce_loss(
        ...     weights=gc.zeros((10, 4)), biases=gc.zeros(10), inputs=gc.ones((2, 4)),
        ...     labels=[[1], [4]], candidates=drawn,
        ... )
        >>> drawn.classes.shape, loss.shape
        ((3,), (2,))
    """

    def __init__(
        self,
        classes: int,
        samples: int,
        unique: bool = True,
        distortion: float = 1.0,
        counts: AnyInitializer = "ones",
        seed: Seed = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name, "int32")
        check_samples("UnigramSampler", samples, classes, unique)
        self.classes = classes
        self.samples = samples
        self.unique = unique
        self.distortion = within("UnigramSampler", "distortion", distortion, POSITIVE)
        self.counts = as_initializer(counts, "UnigramSampler")
        self.seed: Any = seed

    def __call__(self, labels: TensorLike, training: bool | Tensor | None = None) -> Candidates:
        with self.scope(labels):
            kind = type(self).__name__
            numbers = as_integers(self, "labels", labels)
            numbers = in_range(numbers, 0, self.classes, "labels", of=kind)
            in_training = check_training(self, training)
            state: Any = self.variable("counts", self.counts, (self.classes,), trainable=False)
            before = state.read()
            weights = power(to_dtype(before, FLOAT32), self.distortion)
            shares = weights / reduce_sum(weights)

            def probability(of: Tensor) -> Tensor:
                return take_for(kind, shares, of)

            def drawn() -> Tensor:
                level = uniform((self.samples,), seed=self.seed)
                return searchsorted(cumsum(shares, 0), level, side="right")

            candidates = sampled(
                numbers,
                self.samples,
                self.classes,
                self.unique,
                self.seed,
                None,
                probability,
                drawn,
            )
            if in_training is not False:
                after = before + bincount(numbers, self.classes)
                update_in_training(state, before, after, in_training)
            return candidates
