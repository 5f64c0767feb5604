"""Runs a command of graphc: `graphc launch -n 1 command.py -- train digits.py`."""

import runpy

if __name__ == "__main__":
    runpy.run_module("graphc", run_name="__main__", alter_sys=True)
