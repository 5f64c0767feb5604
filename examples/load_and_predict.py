"""Runs a saved artifact on images; it needs only the model's file.

python examples/load_and_predict.py model.gcx images.npy answers.npy
"""

from __future__ import annotations

import sys

import numpy as np

import graphc as gc


def main() -> None:
    artifact, images, answers = sys.argv[1:]
    model = gc.load(artifact)
    logits = model.signatures["predict"](x=np.load(images))["logits"]
    np.save(answers, np.argmax(logits, axis=-1))


if __name__ == "__main__":
    main()
