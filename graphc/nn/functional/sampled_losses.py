"""Losses over very many classes, computed on a sample of them, and the samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphc.errors import AttributeValueError
from graphc.ir.node import Tensor
from graphc.ops.arrays.creation import iota, zeros_like
from graphc.ops.arrays.indexing import take_for
from graphc.ops.arrays.joining import concatenate
from graphc.ops.arrays.shape import broadcast_to, expand_dims
from graphc.ops.core.checks import refuse
from graphc.ops.core.emit import cast, constant, convert, promote_operands, to_dtype
from graphc.ops.core.operands import as_integers
from graphc.ops.core.ranges import in_range
from graphc.ops.draws.location_scale import gumbel, uniform
from graphc.ops.elementwise.arithmetic import minimum
from graphc.ops.elementwise.comparison import equal, where
from graphc.ops.elementwise.rounding import floor
from graphc.ops.elementwise.transcendental import exp, expm1, log, log1p
from graphc.ops.matrices.matrix_product import matmul
from graphc.ops.nn import loss
from graphc.ops.reductions.reduction import reduce_sum
from graphc.ops.reductions.sorting import top_k
from graphc.ops.structure.state import stop_gradient
from graphc.typing import Seed, TensorLike

__all__ = [
    "Candidates",
    "log_uniform_candidate_sampler",
    "nce_loss",
    "sampled_softmax_loss",
    "uniform_candidate_sampler",
]


class Candidates(NamedTuple):
    """Classes that a sampler drew for a batch.

    Attributes:
        classes: i32[samples], the classes drawn.
        true_counts: the expected number of draws of each label, in the shape of the labels.
        counts: f32[samples], the expected number of draws of each class drawn.

    Examples:
        >>> drawn = gc.nn.uniform_candidate_sampler([[1], [4]], samples=3, classes=10)
        >>> drawn.classes.shape, drawn.true_counts.shape, drawn.counts.shape
        ((3,), (2, 1), (3,))
    """

    classes: Tensor
    true_counts: Tensor
    counts: Tensor


def log_uniform_candidate_sampler(
    labels: TensorLike,
    samples: int,
    classes: int,
    *,
    unique: bool = True,
    seed: Seed = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes in each run, with probability log((c + 2) / (c + 1)) / log(classes + 1).

    That is Zipf's law for classes in the order of their frequency, the most frequent as 0.

    Args:
        labels: integers of any shape: the true classes. They only say which expected counts to
            compute, and do not change what is drawn.
        samples: how many classes to draw.
        classes: how many classes there are.
        unique: whether no class is drawn twice. The expected count of a class is then the
            probability that it is drawn. Each run takes time in proportion to `classes`.
        seed: see `gc.random.random_key`.
        name: of the drawn classes.

    Raises:
        AttributeValueError: numbers that are not positive, or more samples than unique classes.
        DTypeError: labels that are not integers.

    Source: TensorFlow's `random.log_uniform_candidate_sampler`. Unique classes are drawn by
    Gumbel's top-k: Kool, van Hoof & Welling, 2019, arXiv:1903.06059.

    Examples:
        >>> gc.nn.log_uniform_candidate_sampler([[1], [4]], samples=3, classes=10).classes.shape
        (3,)
    """
    check_samples("log_uniform_candidate_sampler", samples, classes, unique)

    def probability(of: Tensor) -> Tensor:
        return log1p(1 / (to_dtype(of, np.dtype("float32")) + 1)) / float(np.log(classes + 1))

    def drawn() -> Tensor:
        power = exp(uniform((samples,), seed=seed) * float(np.log(classes + 1)))
        return floor(power) - 1

    numbers = _checked("log_uniform_candidate_sampler", labels, classes)
    return sampled(numbers, samples, classes, unique, seed, name, probability, drawn)


def uniform_candidate_sampler(
    labels: TensorLike,
    samples: int,
    classes: int,
    *,
    unique: bool = True,
    seed: Seed = None,
    name: str | None = None,
) -> Candidates:
    """Draws classes with equal probability in each run.

    Args, Raises: as `log_uniform_candidate_sampler`.

    Source: TensorFlow's `random.uniform_candidate_sampler`.

    Examples:
        >>> gc.nn.uniform_candidate_sampler([[1], [4]], samples=3, classes=10).classes.shape
        (3,)
    """
    check_samples("uniform_candidate_sampler", samples, classes, unique)

    def probability(of: Tensor) -> Tensor:
        return zeros_like(to_dtype(of, np.dtype("float32"))) + 1 / classes

    def drawn() -> Tensor:
        return uniform((samples,), 0, classes, "int32", seed=seed)

    numbers = _checked("uniform_candidate_sampler", labels, classes)
    return sampled(numbers, samples, classes, unique, seed, name, probability, drawn)


def nce_loss(
    *,
    weights: TensorLike,
    biases: TensorLike,
    inputs: TensorLike,
    labels: TensorLike,
    samples: int | None = None,
    candidates: Candidates | None = None,
    remove_accidental_hits: bool = False,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Noise-contrastive estimation: logistic regression between true classes and drawn ones.

    For training only; to evaluate, use the logits `inputs @ weights.T + biases` of all classes.
    The logits estimate logarithms of probabilities. Initialize the biases with `-log(classes)`:
    with zeros, about the first thousand steps only correct the biases.

    Args:
        weights: [classes, features], floating: a vector for each class.
        biases: [classes].
        inputs: [batch, features].
        labels: [batch], or [batch, n] for n true classes: integers in [0, classes).
        samples: how many classes `log_uniform_candidate_sampler` draws, for the whole batch.
        candidates: the result of another sampler for these labels, instead of `samples`.
        remove_accidental_hits: whether to ignore a drawn class for the examples it is a label of.
        seed: of the default sampler.
        name: of the node.

    Returns:
        [batch]: one loss for each example.

    Raises:
        ShapeError: operands of other shapes.
        AttributeValueError: neither or both of `samples` and `candidates`, or see
            `log_uniform_candidate_sampler`.
        DTypeError: labels that are not integers.

    Source: Gutmann & Hyvärinen, 2010; TensorFlow's `nn.nce_loss`.

    Examples:
        >>> weights, biases = gc.zeros((10, 4)), gc.zeros(10)
        >>> loss = gc.nn.nce_loss(
        ...     weights=weights, biases=biases, inputs=gc.ones((2, 4)), labels=[1, 4], samples=3
        ... )
        >>> loss.shape
        (2,)
    """
    given = ("nce_loss", weights, biases, inputs, labels, samples, candidates)
    logits, wanted = _sampled_logits(*given, remove_accidental_hits, seed)
    return reduce_sum(loss.sigmoid_cross_entropy(logits, wanted), axis=-1, name=name)


def sampled_softmax_loss(
    *,
    weights: TensorLike,
    biases: TensorLike,
    inputs: TensorLike,
    labels: TensorLike,
    samples: int | None = None,
    candidates: Candidates | None = None,
    remove_accidental_hits: bool = True,
    seed: Seed = None,
    name: str | None = None,
) -> Tensor:
    """Cross-entropy of the softmax over the true classes and drawn ones, instead of all classes.

    For training only; to evaluate, use `softmax_cross_entropy` of all classes.

    Args:
        weights, biases, inputs, ..., name: as in `nce_loss`.

    Returns:
        [batch]: one loss for each example.

    Raises:
        ShapeError, AttributeValueError, DTypeError: as `nce_loss`.

    Source: Jean et al., 2014, arXiv:1412.2007; TensorFlow's `nn.sampled_softmax_loss`.

    Examples:
        >>> weights, biases = gc.zeros((10, 4)), gc.zeros(10)
        >>> inputs, labels = gc.ones((2, 4)), [1, 4]
        >>> gc.nn.sampled_softmax_loss(
        ...     weights=weights, biases=biases, inputs=inputs, labels=labels, samples=3
        ... ).shape
        (2,)
    """
    given = ("sampled_softmax_loss", weights, biases, inputs, labels, samples, candidates)
    logits, wanted = _sampled_logits(*given, remove_accidental_hits, seed)
    return loss.softmax_cross_entropy(logits, wanted, name=name)


def check_samples(op: str, samples: Any, classes: Any, unique: bool) -> None:
    """Raises `AttributeValueError` unless a sampler `op` can draw this many classes."""
    for what, value in (("samples", samples), ("classes", classes)):
        if type(value) is not int or value < 1:
            refuse(
                f"{op}: {what} must be an int of 1 or more, got {value!r}",
                error=AttributeValueError,
                hint=f"{op}(labels, samples=64, classes=10_000)"
                if op.islower()
                else f"{op}(classes=10_000, samples=64)",
            )
    if unique and samples > classes:
        refuse(
            f"{op}: cannot draw {samples} different classes of {classes}",
            error=AttributeValueError,
            hint="draw fewer, or pass unique=False",
        )


def sampled(
    labels: Tensor,
    samples: int,
    classes: int,
    unique: bool,
    seed: Any,
    name: str | None,
    probability: Callable[[Tensor], Tensor],
    drawn: Callable[[], Tensor],
) -> Candidates:
    """The result of a sampler for labels that are in range.

    Args:
        labels, samples, classes, unique, seed, name: as of the samplers.
        probability: gives the probability of each class of a tensor of classes.
        drawn: draws [samples] with repetition.
    """
    if not unique:
        # Rounding may give the number after the last class.
        chosen = cast(minimum(drawn(), classes - 1), "int32", name=name)
        expected = [probability(of) * samples for of in (labels, chosen)]
    else:
        # Gumbel's top-k: each class arrives after an exponential time with rate p, and the first
        # `samples` arrivals are drawn. This gives the distribution of drawing without replacement.
        # Before the time of the first class left out, exp(-score), a class arrives with
        # probability 1 - exp(-p * time).
        every = log(probability(iota((classes,))))
        scores, places = top_k(every + gumbel((classes,), seed=seed), min(samples + 1, classes))
        chosen = cast(places[:samples], "int32", name=name)
        if samples == classes:
            expected = [probability(of) * 0 + 1 for of in (labels, chosen)]
        else:
            time = exp(-scores[samples])
            expected = [-expm1(-probability(of) * time) for of in (labels, chosen)]
    return Candidates(chosen, *expected)


def _checked(op: str, labels: Any, classes: Any) -> Tensor:
    return in_range(as_integers(op, "labels", labels), 0, classes, "labels", of=op)


def _sampled_logits(
    op: str,
    weights: Any,
    biases: Any,
    inputs: Any,
    labels: Any,
    samples: int | None,
    candidates: Candidates | None,
    remove_hits: bool,
    seed: Any,
) -> tuple[Tensor, Tensor]:
    """Logits of the true and of the drawn classes [batch, n + samples], minus the logarithms of
    their expected counts; and the labels of these logits."""
    weights, biases, inputs = promote_operands(weights, biases, inputs)
    labels = convert(labels)
    classes = _number_of_classes(op, weights, biases, inputs, labels)
    labels = _checked(op, labels, classes)
    if labels.ndim == 1:
        labels = expand_dims(labels, 1)
    if (samples is None) == (candidates is None):
        refuse(
            f"{op}: takes either samples= or candidates=",
            error=AttributeValueError,
            hint="samples=64 draws from the log-uniform distribution",
        )
    if candidates is None:
        assert samples is not None
        candidates = log_uniform_candidate_sampler(labels, samples, classes, seed=seed)
    drawn, true_counts, counts = (stop_gradient(convert(part)) for part in candidates)
    if true_counts.ndim == 1:
        true_counts = expand_dims(true_counts, 1)
    dtype = inputs.dtype

    vectors = take_for(op, weights, labels)  # [batch, n, features]
    true = reduce_sum(vectors * expand_dims(inputs, 1), axis=-1) + take_for(op, biases, labels)
    true = true - to_dtype(log(true_counts), dtype)
    others = matmul(inputs, take_for(op, weights, drawn).T) + take_for(op, biases, drawn)
    others = others - to_dtype(log(counts), dtype)
    if remove_hits:
        hits = reduce_sum(cast(equal(expand_dims(labels, 2), drawn), "int32"), axis=1)
        others = where(hits > 0, -1e9 if dtype.itemsize > 2 else -1e4, others)
    number = labels.shape[1]
    share = 1 / cast(constant(number) if isinstance(number, int) else convert(number), dtype)
    wanted = concatenate([broadcast_to(share, true.shape), zeros_like(others)], axis=1)
    return concatenate([true, others], axis=1), wanted


def _number_of_classes(
    op: str, weights: Tensor, biases: Tensor, inputs: Tensor, labels: Tensor
) -> int:
    ranks = (weights.ndim, biases.ndim, inputs.ndim)
    if ranks != (2, 1, 2) or labels.ndim not in (1, 2):
        refuse(
            f"{op}: takes weights [classes, features], biases [classes], inputs [batch, features] "
            "and labels [batch] or [batch, n]",
            weights=weights,
            biases=biases,
            inputs=inputs,
            labels=labels,
        )
    classes, features = weights.shape
    if not isinstance(classes, int):
        refuse(f"{op}: the number of classes must be known, got {classes!s}", weights=weights)
    pairs: list[tuple[str, Any, str, Any]] = [
        ("classes", classes, "biases", biases.shape[0]),
        ("features", features, "inputs", inputs.shape[1]),
    ]
    for what, size, who, other in pairs:
        if isinstance(size, int) and isinstance(other, int) and size != other:
            refuse(
                f"{op}: weights have {size} {what}, {who} {other}",
                hint="weights are [classes, features]",
                weights=weights,
                biases=biases,
                inputs=inputs,
            )
    return classes
