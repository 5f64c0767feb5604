"""A network reads strings of three to five digits from noisy frames (each digit shows its pattern
for two to four frames, with pauses of any length). The CTC loss does not know the positions of
the digits. Over 90 % of new strings are read without an error."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 1e-2
FRAMES, FEATURES, LONGEST = 28, 12, 5
BLANK = 10  # the class after the digits


def strings(rng, patterns, count):
    """Frames [count, FRAMES, FEATURES], digits [count, LONGEST], and the lengths of both."""
    frames = 0.5 * rng.normal(size=(count, FRAMES, FEATURES))
    digits = np.zeros((count, LONGEST), np.int32)
    frame_counts, digit_counts = np.zeros(count, np.int32), rng.integers(3, LONGEST + 1, count)
    for i in range(count):
        time = rng.integers(0, 2)
        digits[i, : digit_counts[i]] = rng.integers(0, 10, digit_counts[i])
        for digit in digits[i, : digit_counts[i]]:
            shown = rng.integers(2, 5)
            frames[i, time : time + shown] += patterns[digit]
            time += shown + rng.integers(1, 3)  # a pause separates two equal digits
        frame_counts[i] = min(time, FRAMES)
    return frames.astype("float32"), digits, frame_counts, digit_counts.astype("int32")


@pytest.mark.slow
@pytest.mark.one_jax
def test_reads_digit_strings():
    rng = np.random.default_rng(SEED)
    patterns = rng.normal(size=(10, FEATURES))

    with gc.Graph(seed=SEED) as graph:
        frames = gc.placeholder((None, FRAMES, FEATURES), name="frames")
        digits = gc.placeholder((None, LONGEST), "int32", name="digits")
        frame_counts = gc.placeholder((None,), "int32", name="frame_counts")
        digit_counts = gc.placeholder((None,), "int32", name="digit_counts")
        h = gc.nn.Bidirectional(gc.nn.GRU(24))(frames, lengths=frame_counts)
        logits = gc.nn.Dense(11)(h)
        losses = gc.nn.ctc_loss(
            logits=logits,
            labels=digits,
            logit_lengths=frame_counts,
            label_lengths=digit_counts,
            blank=BLANK,
        )
        train = gc.minimize(gc.reduce_mean(losses), optax.adam(RATE))
        greedy, greedy_counts, _ = gc.nn.ctc_greedy_decode(logits, frame_counts, BLANK)
        beam, beam_counts, _ = gc.nn.ctc_beam_search(logits, frame_counts, beams=8, blank=BLANK)
        by_greedy = gc.nn.edit_distance(greedy, digits, greedy_counts, digit_counts)
        by_beam = gc.nn.edit_distance(beam[:, 0], digits, beam_counts[:, 0], digit_counts)

    inputs = frames, digits, frame_counts, digit_counts
    session = gc.Session(graph)
    for _ in range(150):
        session.run(train, dict(zip(inputs, strings(rng, patterns, 32), strict=True)))

    test = dict(zip(inputs, strings(rng, patterns, 300), strict=True))
    for distances in session.run([by_greedy, by_beam], test):
        assert np.mean(distances == 0) > 0.9
