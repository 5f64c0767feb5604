"""Fine-tuning from a partial restore helps if there are few examples."""

import sys

import fine_tune


def test_it_beats_the_initial_values(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fine_tune.py"])
    tuned, alone = fine_tune.main()
    assert "took 4 of 26 variables" in capsys.readouterr().out
    assert tuned > 0.8
    assert tuned > alone + 0.02
