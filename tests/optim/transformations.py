"""The optax transformations that `minimize` is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optax

WARM = optax.warmup_cosine_decay_schedule(0.0, 0.05, 2, 10)


def _even(step: Any, **_: Any) -> Any:
    return step % 2 == 0


def _matrices(parameters: Any) -> Any:
    return {name: value.ndim > 1 for name, value in parameters.items()}


def _clipped_adam(learning_rate: Any, b1: Any) -> optax.GradientTransformation:
    return optax.chain(optax.clip(0.1), optax.adam(learning_rate, b1))


TRANSFORMATIONS: Mapping[str, Any] = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(0.01),
    "adamw": lambda: optax.adamw(0.01, weight_decay=0.1),
    "adagrad": lambda: optax.adagrad(0.1),
    "adadelta": lambda: optax.adadelta(0.5),
    "adafactor": lambda: optax.adafactor(0.05, min_dim_size_to_factor=2),
    "amsgrad": lambda: optax.amsgrad(0.01),
    "lamb": lambda: optax.lamb(0.01),
    "lars": lambda: optax.lars(0.01),
    "lion": lambda: optax.lion(0.01),
    "nadam": lambda: optax.nadam(0.01),
    "radam": lambda: optax.radam(0.01),
    "rmsprop": lambda: optax.rmsprop(0.01, momentum=0.5, centered=True),
    "rprop": lambda: optax.rprop(0.01),
    "sm3": lambda: optax.sm3(0.05),
    "yogi": lambda: optax.yogi(0.01),
    "schedule_free": lambda: optax.contrib.schedule_free_adamw(0.01, warmup_steps=3),
    "prodigy": lambda: optax.contrib.prodigy(0.5),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.05), optax.adam(0.01)),
    "scheduled": lambda: optax.adam(WARM),
    "one cycle": lambda: optax.sgd(optax.cosine_onecycle_schedule(8, 0.1)),
    "piecewise": lambda: optax.sgd(optax.piecewise_constant_schedule(0.1, {2: 0.5, 4: 0.1})),
    "staircase": lambda: optax.sgd(optax.exponential_decay(0.1, 2, 0.7, staircase=True)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=WARM),
    "chain": lambda: optax.chain(
        optax.clip(0.1), optax.trace(0.9), optax.ema(0.5), optax.scale(-0.1)
    ),
    "masked decay": lambda: optax.adamw(
        0.01, weight_decay=0.1, mask=lambda p: {n: v.ndim > 1 for n, v in p.items()}
    ),
    "two of them": lambda: optax.partition(
        {"slow": optax.sgd(0.01), "fast": optax.adam(0.05)},
        lambda p: {n: "fast" if "kernel" in n else "slow" for n in p},
    ),
    "value": lambda: optax.polyak_sgd(0.5),
    "orthogonal": lambda: optax.contrib.muon(0.01, ns_steps=2),
    # -- transformations that branch on values or keep other state
    "accumulated": lambda: optax.MultiSteps(optax.adam(0.01), 2),
    "accumulated by a schedule": lambda: optax.MultiSteps(optax.sgd(0.1), lambda step: step + 1),
    "skipping": lambda: optax.MultiSteps(
        optax.adam(0.01), 1, should_skip_update_fn=optax.skip_not_finite
    ),
    "finite": lambda: optax.apply_if_finite(optax.adam(0.01), 2),
    "every second": lambda: optax.chain(optax.apply_every(2), optax.scale(-0.1)),
    "conditional": lambda: optax.chain(
        optax.conditionally_transform(optax.scale(0.5), _even), optax.scale(-0.1)
    ),
    "conditionally masked": lambda: optax.conditionally_mask(optax.adam(0.01), _even),
    "plateau": lambda: optax.chain(
        optax.adam(0.01), optax.contrib.reduce_on_plateau(patience=1, accumulation_size=2)
    ),
    "masked": lambda: optax.masked(optax.adam(0.01), _matrices),
    "frozen": lambda: optax.partition(
        {"a": optax.adam(0.05), "b": optax.set_to_zero()},
        lambda p: {n: "a" if "kernel" in n else "b" for n in p},
    ),
    "injected chain": lambda: optax.inject_hyperparams(_clipped_adam)(WARM, b1=0.8),
    "adaptively clipped": lambda: optax.chain(optax.adaptive_grad_clip(0.01), optax.sgd(0.1)),
    "noisy": lambda: optax.noisy_sgd(0.1, key=3),
    "lbfgs": lambda: optax.lbfgs(0.01, linesearch=None),
    "mechanic": lambda: optax.contrib.mechanize(optax.sgd(0.1)),
    "momo": lambda: optax.contrib.momo_adam(0.01),
    "cocob": lambda: optax.contrib.cocob(),
    "trust": lambda: optax.chain(
        optax.scale_by_adam(), optax.scale_by_trust_ratio(), optax.scale(-0.1)
    ),
    "joined": lambda: optax.sgd(
        optax.join_schedules(
            [optax.constant_schedule(0.1), optax.linear_schedule(0.1, 0.01, 3)], [2]
        )
    ),
    # -- transformations that evaluate the loss at other parameters
    "line search": lambda: optax.lbfgs(),
    "backtracking": lambda: optax.chain(
        optax.sgd(1.0), optax.scale_by_backtracking_linesearch(10, decrease_factor=0.3)
    ),
    "backtracking with gradients": lambda: optax.lbfgs(
        linesearch=optax.scale_by_backtracking_linesearch(10, store_grad=True)
    ),
    "sharpness": lambda: optax.contrib.sam(
        optax.adam(0.1), optax.sgd(0.05), sync_period=2, opaque_mode=True
    ),
}
