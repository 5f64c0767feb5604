"""A student network with few labels learns digits from a teacher's soft predictions on unlabeled
images. It reads over 90 % of the test digits, and makes half the errors of the same network
trained only on its labels."""

import numpy as np
import optax
from sklearn.datasets import load_digits

import graphc as gc

SEED, RATE = 0, 1e-2
TEMPERATURE = 3.0
LABELLED = 60


def read():
    """Training and test images with their classes."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(images))
    images, labels = images[order].astype("float32") / 16, labels[order].astype("int32")
    return images[:1200], labels[:1200], images[1200:], labels[1200:]


def network(units, name):
    layers = [gc.nn.Dense(n, activation="relu") for n in units]
    return gc.nn.Sequential([*layers, gc.nn.Dense(10)], name=name)


def batches(rng, images, labels, steps):
    for _ in range(steps):
        chosen = rng.integers(0, len(images), 64)
        yield {"image": images[chosen], "label": labels[chosen]}


def test_a_student_learns_from_its_teacher():
    images, labels, test_images, test_labels = read()

    with gc.Graph(seed=SEED) as graph:
        image = gc.placeholder((None, 64), name="image")
        label = gc.placeholder((None,), "int32", name="label")
        teacher = network([128, 64], "teacher")(image)
        student = network([20], "student")(image)
        alone = network([20], "alone")(image)

        def hard(logits):
            losses = gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=label)
            return gc.reduce_mean(losses)

        soft = gc.nn.softmax_cross_entropy(
            logits=student / TEMPERATURE,
            labels=gc.stop_gradient(gc.softmax(teacher / TEMPERATURE)),
        )
        train_teacher = gc.minimize(hard(teacher), optax.adam(RATE), name="train_teacher")
        train_alone = gc.minimize(hard(alone), optax.adam(RATE), name="train_alone")
        loss = TEMPERATURE**2 * gc.reduce_mean(soft)
        train_student = gc.minimize(loss, optax.adam(RATE), name="train_student")
        accuracies = [
            gc.reduce_mean(gc.cast(gc.argmax(logits, axis=-1) == label, "float32"))
            for logits in (teacher, student, alone)
        ]

    session = gc.Session(graph)
    rng = np.random.default_rng(SEED)
    for feeds in batches(rng, images, labels, 300):
        session.run(train_teacher, feeds)
    for feeds in batches(rng, images[:LABELLED], labels[:LABELLED], 300):
        session.run(train_alone, feeds)
    for feeds in batches(rng, images, labels, 300):
        session.run(train_student, {"image": feeds["image"]})

    feeds = {"image": test_images, "label": test_labels}
    of_teacher, of_student, of_alone = session.run(accuracies, feeds)
    assert of_student > 0.9
    assert 1 - of_student < 0.5 * (1 - of_alone)
