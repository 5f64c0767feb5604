"""A convolution and a GRU with greedy decoding in a loop, as in TensorFlow 1, write two words for a
picture: over 95 % of the words of new pictures are right."""

import numpy as np
import optax
import pytest

import graphc as gc

SEED, RATE = 0, 1e-2
WORDS, STEPS = 8, 4
START, PAD, END = 1, 2, 3


def pictures(rng, count):
    """Pictures with a bright quarter, and two words for it: top or bottom, left or right."""
    places = rng.integers(0, 4, count)
    images = rng.normal(0, 0.1, (count, 8, 8, 1)).astype("float32")
    for image, place in zip(images, places, strict=True):
        row, column = 4 * (place // 2), 4 * (place % 2)
        image[row : row + 4, column : column + 4] += 1
    ends = np.tile([END, PAD], (count, 1))
    return images, np.stack([4 + places // 2, 6 + places % 2, *ends.T], axis=1).astype("int32")


@pytest.mark.slow
def test_finds_the_words():
    with gc.Graph(seed=SEED) as graph:
        images = gc.placeholder((None, 8, 8, 1), name="images")
        captions = gc.placeholder((None, STEPS), "int32", name="captions")
        rate = gc.placeholder((), name="rate")
        with gc.name_scope("encoder"):
            encoder = gc.nn.Sequential(
                [
                    gc.nn.Conv2D(8, 3, activation="relu"),
                    gc.nn.MaxPool2D(2),
                    gc.nn.Flatten(),
                    gc.nn.Dense(32, activation="tanh"),
                ]
            )
            features = encoder(images)
        with gc.name_scope("decoder"):
            embed, rnn = gc.nn.Embedding(WORDS, 16), gc.nn.RNN(gc.nn.GRUCell(32))
            out = gc.nn.Dense(WORDS)
            count = images.shape[0]
            first = gc.full((count, 1), START)
            before = gc.concatenate([first, captions[:, :-1]], axis=1)
            logits = out(rnn(embed(before), state=features))
        counted = gc.cast(captions != PAD, "float32")
        losses = gc.nn.sparse_softmax_cross_entropy(labels=captions, logits=logits)
        loss = gc.reduce_sum(counted * losses) / gc.reduce_sum(counted)
        steps = gc.variable(0, trainable=False, name="global_step")
        clipped = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(rate))
        train = gc.group(gc.minimize(loss, clipped), steps.assign_add(1))

        def body(carry):
            step, word, state, words = carry
            y, state = rnn.with_state(embed(word)[:, None], state)
            word = gc.argmax(out(y[:, 0]), axis=-1)
            return step + 1, word, state, words.at[:, step].set(word)

        start = (0, first[:, 0], features, gc.zeros((count, STEPS), "int32"))
        words = gc.while_loop(lambda carry: carry[0] < STEPS, body, start)[3]

    session, rng = gc.Session(graph), np.random.default_rng(SEED)
    for step in range(120):
        shown, said = pictures(rng, 64)
        session.run(train, {images: shown, captions: said, rate: RATE / (1 + step / 60)})
    shown, said = pictures(rng, 200)
    found = session.run(words, {images: shown})
    assert np.mean(np.asarray(found)[:, :2] == said[:, :2]) > 0.95
    assert session.get("global_step") == 120
    assert "encoder/sequential/conv2d/kernel" in graph.variables
