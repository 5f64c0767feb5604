"""The user's script: imports it as Python would run it, and gets its job."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import is_zipfile

from graphc.cli.failures import code_of
from graphc.errors import GraphcError, nearest
from graphc.runtime.session import Session
from graphc.train.job import Job

_MODULE = "__graphc_script__"  # neither __main__ nor a name that the script may import


def load_job(script: str, arguments: Sequence[str], *, guarded: bool = True) -> Job:
    """Returns the result of the script's `build()`.

    Args:
        arguments: the script's `sys.argv`, after its own name.
        guarded: whether exceptions in its batches and its evaluation become errors of the script.
            Guarded batches are plain iterables, so they have no position and no epochs.

    Raises:
        GraphcError: the file does not exist, has no `build()`, or it returns something else.
        ScriptError: the script raised an exception.
    """
    path = _checked(script)
    _refuse_without_build(script, path)
    module = _imported(script, path, arguments)
    build = getattr(module, "build", None)
    if not callable(build):
        raise _no_build(script, [n for n, v in vars(module).items() if isfunction(v)])
    with code_of(script):
        job = build()
    if not isinstance(job, Job):
        raise GraphcError(
            f"build() of {script} must return a gc.train.Job, got {type(job).__name__}",
            hint="return gc.train.Job(graph, train, batches, steps, ...)",
        )
    return _guarded(script, job) if guarded else job


def _no_build(script: str, functions: Iterable[str]) -> GraphcError:
    hint = nearest("build", functions) or ""
    return GraphcError(
        f"{script} has no function build()",
        hint=hint if "mean" in hint else "define one that returns a gc.train.Job",
    )


def _refuse_without_build(script: str, path: Path) -> None:
    """Rejects a script that never mentions `build`, before it can train for an hour itself.

    A script may still bind the name in a way that cannot be seen here, with `from m import *`,
    `exec` or `globals()`. Such a script runs, and `load_job` looks again.
    """
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # running the script reports the error
    functions = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    imported = {n.asname or n.name for n in nodes if isinstance(n, ast.alias)}
    classes = {n.name for n in nodes if isinstance(n, ast.ClassDef)}
    if not {"build", "*", "exec", "globals"} & (functions | names | imported | classes):
        raise _no_build(script, functions)


def _checked(script: str) -> Path:
    """The path of a file that may be a Python script."""
    path = Path(script)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise GraphcError(f"script {script!r} {what}", hint="give a Python file")
    if is_zipfile(path):  # artifacts are zip files
        raise GraphcError(
            f"script {script!r} is an archive of programs, as gc.save writes it",
            hint="give the Python file that it was made by",
        )
    return path


def _imported(script: str, path: Path, arguments: Sequence[str]) -> ModuleType:
    """The script as a module. Its folder comes first in `sys.path`, as when Python runs it."""
    loader = SourceFileLoader(_MODULE, str(path.resolve()))  # whatever the file's extension is
    spec = spec_from_file_location(_MODULE, path.resolve(), loader=loader)
    if spec is None:
        raise GraphcError(f"script {script!r} cannot be imported")
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [script, *arguments]
    sys.modules[_MODULE] = module
    with code_of(script):
        loader.exec_module(module)
    return module


def _guarded(script: str, job: Job) -> Job:
    """The job; exceptions in its batches and its evaluation become errors of the script."""

    class Batches:
        def __iter__(self) -> Iterator[Mapping[Any, Any]]:
            with code_of(script):
                batches = iter(job.batches)
            while True:
                with code_of(script):
                    feeds = next(batches, None)
                if feeds is None:
                    return
                yield feeds

    def evaluate(session: Session) -> Mapping[str, float]:
        if job.evaluate is None:
            return {}
        with code_of(script):
            return {name: float(value) for name, value in job.evaluate(session).items()}

    return replace(job, batches=Batches(), evaluate=evaluate)
