"""Higher-order operators: branches, loops, and regions without gradients."""

from __future__ import annotations

from typing import Any, Final

from graphc import ops
from graphc.importers.torch.call import Call, Rule
from graphc.ops.control.branching import cond
from graphc.ops.control.scan import map_fn, scan
from graphc.ops.control.while_loops import while_loop


def _cond(call: Call, predicate: Any, then: Any, other: Any, operands: Any) -> Any:
    def branch(module: Any) -> Any:
        return lambda: tuple(call.tensor(v) for v in call.body(module, operands))

    if isinstance(predicate, bool):
        return tuple(call.body(then if predicate else other, operands))
    return tuple(cond(ops.reshape(predicate, ()), branch(then), branch(other)))


def _while(call: Call, test: Any, body: Any, carried: Any, others: Any = ()) -> Any:
    def goes_on(state: Any) -> Any:
        (found,) = call.body(test, [*state, *others])
        return ops.reshape(call.tensor(found), ())

    def step(state: Any) -> Any:
        return tuple(call.tensor(v) for v in call.body(body, [*state, *others]))

    return tuple(while_loop(goes_on, step, tuple(call.tensor(v) for v in carried)))


def _scan(call: Call, combine: Any, init: Any, xs: Any, others: Any = ()) -> Any:
    count = len(init)

    def step(state: Any, items: Any) -> Any:
        results = [call.tensor(v) for v in call.body(combine, [*state, *items, *others])]
        return tuple(results[:count]), tuple(results[count:])

    last, ys = scan(step, tuple(init), tuple(xs))
    return (*last, *ys)


def _map(call: Call, body: Any, xs: Any, others: Any = ()) -> Any:
    def one(items: Any) -> Any:
        return tuple(call.tensor(v) for v in call.body(body, [*items, *others]))

    return tuple(map_fn(one, tuple(xs)))


def _without_gradient(call: Call, enabled: bool, module: Any, *args: Any) -> Any:
    results = call.body(module, args)
    if enabled:
        return tuple(results)
    return tuple(ops.stop_gradient(r) if hasattr(r, "dtype") else r for r in results)


def _autocast(call: Call, *args: Any, **options: Any) -> Any:
    place = next(i for i, arg in enumerate(args) if hasattr(arg, "graph"))
    return tuple(call.body(args[place], args[place + 1 :]))


def _wrapped(call: Call, module: Any, *args: Any, **options: Any) -> Any:
    return tuple(call.body(module, args))


RULES: Final[dict[str, Rule]] = {
    "cond": _cond,
    "map_impl": _map,
    "scan": _scan,
    "tag_activation_checkpoint": _wrapped,
    "while_loop": _while,
    "wrap": _wrapped,
    "wrap_with_autocast": _autocast,
    "wrap_with_set_grad_enabled": _without_gradient,
}
