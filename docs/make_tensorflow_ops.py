"""Writes docs/tensorflow-ops.md: the operators of TensorFlow that are imported. Run it after a
change of the rules: python docs/make_tensorflow_ops.py"""

from __future__ import annotations

from pathlib import Path

from graphc.importers.tensorflow.rules.table import operators_by_family

PAGE = Path(__file__).with_name("tensorflow-ops.md")


def page() -> str:
    """The text of the page."""
    families = operators_by_family()
    count = sum(len(names) for title, names in families.items() if not title.startswith("Cut"))
    rows = [f"| {title} | {', '.join(names)} |" for title, names in families.items()]
    return "\n".join(
        [
            "# Operators of TensorFlow that are imported",
            "",
            "<!-- Written by docs/make_tensorflow_ops.py from the rules. -->",
            "",
            f"{count} operators, by the files of `graphc/importers/tensorflow/rules/`. "
            "[Models of TensorFlow](guide/import-tensorflow.md) says how to import a model.",
            "",
            "| family | operators |",
            "|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
