"""Parts of benchmarks that run in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def answer_of(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """What a module prints as JSON, in its last line, when Python runs it with these arguments.

    Args:
        environment: of the process; by default that of this one.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])
