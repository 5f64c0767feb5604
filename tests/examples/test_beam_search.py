"""Beam search in a graph, compared with Python code that reruns the model on every beam."""

import beam_search
import char_lstm
import jax
import numpy as np
import pytest
import sources

import graphc as gc
from tests.examples.lstm_in_jax import network
from tests.near import assert_near

PROMPTS = ("x = ", "return", "")


@pytest.fixture(scope="module")
def untrained():
    """A small model with large weights: the next token depends on all tokens before it."""
    language = char_lstm.make_language(units=16, batch=4, lengths=(32,))
    session = gc.Session(language.job.graph)
    params = {n: np.array(v) for n, v in session.values().items() if n.startswith("lstm/")}
    for name in params:
        params[name] = 4 * params[name] if "kernel" in name or "table" in name else params[name]
    params["lstm/head/bias"] = 2.0 * (np.arange(char_lstm.VOCABULARY) == char_lstm.NEWLINE)
    session.set_all(params)
    return language, session, params


class InPython:
    """The same search by lists of (score, characters)."""

    def __init__(self, params, limits) -> None:
        self.limits = limits
        self.params = params
        self.guess = jax.jit(lambda params, tokens: jax.nn.log_softmax(network(params, tokens)))

    def followed(self, prompt, line):
        """The log probabilities of the next token after a line."""
        # Padding to one size makes one compilation enough. The padding has no effect.
        tokens = np.zeros((1, 32), np.int32)
        known = [char_lstm.NEWLINE, *prompt, *line]
        tokens[0, : len(known)] = known
        return np.asarray(self.guess(self.params, tokens)[0, len(known) - 1])

    def __call__(self, prompt):
        prompt = sources.encode(prompt)
        beams, ended = [(0.0, ())], []
        for turn in range(self.limits.most + 1):
            grown = []
            for score, line in beams:
                for character, cost in enumerate(self.followed(prompt, line)):
                    if character != char_lstm.NEWLINE:
                        grown.append((score + cost, (*line, character)))
                    elif turn >= self.limits.least:
                        ended.append((score + cost, line))
            beams = sorted(grown, reverse=True)[: self.limits.beams]
        best = sorted(ended, reverse=True)[: self.limits.beams]
        return [(sources.decode(line), score) for score, line in best]


@pytest.mark.parametrize("limits", [(4, 0, 6), (3, 4, 10)], ids=str)
def test_it_finds_what_the_search_in_python_finds(untrained, limits) -> None:
    language, session, params = untrained
    limits = beam_search.Limits(*limits)
    with language.job.graph.extend():
        finish = beam_search.Finisher(language, limits)
    reference = InPython(params, limits)
    for prompt in PROMPTS:
        found, expected = finish(session, prompt), reference(prompt)
        assert [text for text, _ in found] == [text for text, _ in expected]
        scores = [score for _, score in found]
        assert_near(scores, [score for _, score in expected], rtol=1e-7, atol=1e-3)


def test_as_many_beams_as_characters_find_every_line_of_one(untrained) -> None:
    language, session, params = untrained
    limits = beam_search.Limits(beams=char_lstm.VOCABULARY, least=1, most=1)
    with language.job.graph.extend():
        finish = beam_search.Finisher(language, limits)
    assert dict(finish(session, "x = ")).keys() == set(sources.CHARACTERS) - {"\n"}


@pytest.mark.slow
def test_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    beam_search.main(["--steps", "20", "--units", "16", "--beams", "2", "--prompt", "def "])
    output = capsys.readouterr().out
    assert "'def ' ends" in output
