"""Training steps of Keras, with JAX as its backend."""

from __future__ import annotations

import os

import jax
import numpy as np

from tests.zoo.programs import labels, program, rows

os.environ.setdefault("KERAS_BACKEND", "jax")  # Keras reads it when it is imported


def trained(model, x, y):
    """One step of Adam as a function of the variables' values and the batch."""
    import keras

    optimizer = keras.optimizers.Adam(1e-3, epsilon=1e-3)  # no sign of a gradient that is noise
    optimizer.build(model.trainable_variables)
    loss_of_batch = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss_of(trained, others, x, y):
        logits, others = model.stateless_call(trained, others, x, training=True)
        return loss_of_batch(y, logits), others

    def step(state, x, y):
        trained, others, moments = state
        (loss, others), slopes = jax.value_and_grad(loss_of, has_aux=True)(trained, others, x, y)
        trained, moments = optimizer.stateless_apply(moments, slopes, trained)
        return loss, (trained, others, moments)

    groups = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    return step, ([[v.value for v in group] for group in groups], x, y)


@program("keras", wrt=())
def keras_images():
    """Augmentation, convolutions, batch norm and dropout."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([
        layers.Input((16, 16, 3)), layers.RandomFlip(), layers.RandomRotation(0.1),
        layers.RandomContrast(0.2), layers.Conv2D(8, 3, padding="same", activation="gelu"),
        layers.BatchNormalization(), layers.MaxPooling2D(), layers.SeparableConv2D(8, 3),
        layers.GroupNormalization(4), layers.Conv2DTranspose(8, 3, strides=2, padding="same"),
        layers.UpSampling2D(interpolation="bilinear"), layers.Dropout(0.3),
        layers.GlobalAveragePooling2D(), layers.Dense(10),
    ])  # fmt: skip
    return trained(model, rows(8, 16, 16, 3), labels(8, 10))


@program("keras", wrt=())
def keras_text():
    """Masked recurrent layers, and attention with a causal mask and with groups of queries."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    tokens = layers.Input((12,), dtype="int32")
    h = layers.Embedding(50, 16, mask_zero=True)(tokens)
    h = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(h)
    h = h + layers.MultiHeadAttention(2, 8, dropout=0.1)(h, h, use_causal_mask=True)
    h = layers.LayerNormalization()(h)
    h = h + layers.GroupQueryAttention(8, 4, 2)(h, h)
    model = keras.Model(tokens, layers.Dense(10)(layers.GRU(8)(h)))
    return trained(model, np.arange(96, dtype="int32").reshape(8, 12) % 50, labels(8, 10))
