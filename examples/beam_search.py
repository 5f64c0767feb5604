"""Beam search over the character LSTM, as one graph: it completes lines of Python.

A beam is an unfinished line. Each iteration of a `gc.while_loop` extends every beam by every
character. Lines that this finishes may replace worse finished lines. The most likely others are the
next beams. Each beam's LSTM state moves with it. The loop ends when no beam can become one of the
best lines.

python examples/beam_search.py --beams 8 --prompt "    return "
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import char_lstm
import jax
import numpy as np
import sources
from char_lstm import NEWLINE, VOCABULARY, CharLSTM

import graphc as gc

PROMPTS = ("def __", "import ", "    return ", "        if not ")


class Lines(NamedTuple):
    """Lines, the most likely first; after its end, each line contains newlines."""

    characters: gc.Tensor  # int32 [beams, most]
    scores: gc.Tensor  # float32 [beams]: log probabilities, -inf where there is no line


class Beams(NamedTuple):
    """The carry of the loop."""

    turn: gc.Tensor  # int32: the number of added characters
    open: Lines
    logits: gc.Tensor  # [beams, characters]: predictions after the open lines
    state: Any  # the LSTM's state after the open lines, [beams, ...]
    ended: Lines


class Limits(NamedTuple):
    """The limits of the search."""

    beams: int = 8
    least: int = 8  # characters before a line may end; the most likely lines are short
    most: int = 40


def search(model: CharLSTM, prompt: gc.Tensor, length: gc.Tensor, limits: Limits) -> Lines:
    """The most likely ways to complete a line.

    Args:
        prompt: int32 [time], of which the first `length` characters count.
    """

    def goes_on(found: Beams) -> gc.Tensor:
        # Scores only decrease: a beam below the worst finished line stays below it.
        hope = found.open.scores[0] > found.ended.scores[-1]
        return gc.logical_and(found.turn <= limits.most, hope)

    def turn(found: Beams) -> Beams:
        return grow(model, found, limits)

    return gc.while_loop(goes_on, turn, begin(model, prompt, length, limits), name="search").ended


def begin(model: CharLSTM, prompt: gc.Tensor, length: gc.Tensor, limits: Limits) -> Beams:
    """One beam without characters after the prompt; the other beams cannot be chosen."""
    beams = limits.beams
    tokens = gc.concatenate([gc.full((1,), NEWLINE, "int32"), prompt], axis=0)
    logits, state = model.with_state(tokens[None], None, lengths=gc.reshape(length + 1, (1,)))
    last = gc.take(logits, length, axis=1)
    several = jax.tree.map(lambda part: gc.repeat(part, beams, axis=0), (last, state))
    blank, none = gc.full((beams, limits.most), NEWLINE, "int32"), gc.full((beams,), -np.inf)
    alone = gc.where(gc.arange(beams) > 0, -np.inf, gc.zeros((beams,)))
    turn = gc.constant(np.int32(0))
    return Beams(turn, Lines(blank, alone), *several, Lines(blank, none))


def grow(model: CharLSTM, found: Beams, limits: Limits) -> Beams:
    """Extends the beams by one character."""
    scores = found.open.scores[:, None] + gc.log_softmax(found.logits)
    worth = gc.where(found.turn < limits.least, -np.inf, scores[:, NEWLINE])
    ends = Lines(found.open.characters, worth)
    both = jax.tree.map(lambda *rows: gc.concatenate(rows, axis=0), found.ended, ends)

    going_on = gc.where(gc.equal(gc.arange(VOCABULARY), NEWLINE), -np.inf, scores)
    highest, places = gc.top_k(gc.reshape(going_on, (-1,)), limits.beams)
    parents, new = places // VOCABULARY, places % VOCABULARY
    before, state = jax.tree.map(
        lambda part: gc.take(part, parents, axis=0), (found.open.characters, found.state)
    )
    here = gc.equal(gc.arange(limits.most), found.turn)
    lines = Lines(gc.where(here, new[:, None], before), highest)
    logits, state = model.with_state(new[:, None], state)
    return Beams(found.turn + 1, lines, logits[:, 0], state, best(both, limits.beams))


def best(lines: Lines, count: int) -> Lines:
    scores, places = gc.top_k(lines.scores, count)
    return Lines(gc.take(lines.characters, places, axis=0), scores)


class Finisher:
    """Completes lines with a trained model. Prompts are padded to a few sizes, to compile less."""

    def __init__(self, language: char_lstm.Language, limits: Limits) -> None:
        self.buckets = gc.Bucketing({"prompt": [8, 16, 32, 64]})
        with language.job.graph:
            self.prompt = gc.placeholder(("prompt",), "int32", name="prompt")
            length = gc.reduce_sum(gc.cast(self.buckets.mask("prompt"), "int32"))
            self.found = search(language.model, self.prompt, length, limits)

    def __call__(self, session: gc.Session, prompt: str) -> list[tuple[str, float]]:
        """The completions of the line with their log probabilities, the best first."""
        feeds = {self.prompt: sources.encode(prompt)}
        lines, scores = self.buckets.run(session, self.found, feeds)
        texts = [sources.decode(line).partition("\n")[0] for line in np.asarray(lines)]
        rows = zip(texts, np.asarray(scores).tolist(), strict=True)
        return [(text, score) for text, score in rows if score > -np.inf]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=char_lstm.STEPS, help="of training")
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--beams", type=int, default=Limits().beams)
    parser.add_argument("--least", type=int, default=Limits().least, help="characters to add")
    parser.add_argument("--most", type=int, default=Limits().most, help="characters to add")
    parser.add_argument("--prompt", action="append", help="may be given more than once")
    options = parser.parse_args(argv)

    language = char_lstm.make_language(units=options.units, steps=options.steps, lengths=(32, 64))
    finish = Finisher(language, Limits(options.beams, options.least, options.most))
    session = gc.Session(language.job.graph)
    history = gc.train.fit(session, language.job)
    print(f"trained to {np.mean(history.metrics['loss'][-20:]) / np.log(2):.2f} bits a character")
    for prompt in options.prompt or PROMPTS:
        found = finish(session, prompt)
        print(f"{prompt!r} ends, by the logarithm of the probability:")
        for text, score in found[:3]:
            print(f"  {score:8.2f}  {prompt}{text}")
        if not found:
            print(f"  not within {options.most} characters")


if __name__ == "__main__":
    main()
