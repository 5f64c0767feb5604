"""Text classification with three classes, one of them rare, with class weights, a penalty,
validation and early stopping, as in Keras: over 90 % macro recall on unseen sentences."""

import numpy as np
import optax

import graphc as gc

SEED, RATE = 0, 1e-2
WORDS, LENGTH, CLASSES = 50, 12, 3


def sentences(rng, count):
    """Indices of words [count, LENGTH]; one word in each sentence shows its class. 0 is padding."""
    classes = rng.choice(CLASSES, count, p=[0.8, 0.15, 0.05]).astype("int32")
    rows = rng.integers(20, WORDS, (count, LENGTH))
    lengths = rng.integers(4, LENGTH + 1, count)
    rows[np.arange(LENGTH) >= lengths[:, None]] = 0
    rows[np.arange(count), rng.integers(0, lengths)] = 5 * classes + 5
    return {"text": rows.astype("int32"), "kind": classes}


def test_finds_the_rare_class_too():
    rng = np.random.default_rng(SEED)
    known, other = sentences(rng, 1000), sentences(rng, 600)
    with gc.Graph(seed=SEED) as graph:
        text = gc.placeholder((None, LENGTH), "int32", name="text")
        kind = gc.placeholder((None,), "int32", name="kind")
        model = gc.nn.Sequential(
            [
                gc.nn.Embedding(WORDS, 16),
                gc.nn.Conv1D(32, 3, padding="same", activation="relu"),
                gc.nn.GlobalMaxPool(),
                gc.nn.Dense(32, activation="relu", kernel_regularizer="l2"),
                gc.nn.Dropout(0.3),
                gc.nn.Dense(CLASSES),
            ]
        )
        losses = gc.nn.sparse_softmax_cross_entropy(labels=kind, logits=model(text, training=True))
        weights = gc.take(np.array([1.0, 4.0, 10.0], "float32"), kind)
        loss = gc.reduce_mean(losses * weights) + 0.01 * gc.nn.penalty(model)
        train = gc.minimize(loss, optax.adam(RATE))
        logits = model(text, training=False)
        recall = gc.metrics.Recall(
            labels=kind, predictions=logits, num_classes=CLASSES, average="macro"
        )

    session = gc.Session(graph)
    job = gc.train.Job(graph, train, gc.data.Batches(known, 50), steps=200, metrics={"loss": loss})
    history = gc.train.fit(
        session,
        job,
        validation=gc.train.Validation([other], {"recall": recall}, every_steps=50),
        callbacks=[gc.train.EarlyStopping("validation/recall", mode="max")],
        progress=False,
    )
    assert history.metrics["loss"][-1] < history.metrics["loss"][0] / 5
    assert gc.train.evaluate(session, [other], {"recall": recall})["recall"] > 0.9
