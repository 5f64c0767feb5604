"""Adds to the site what is not written in docs/: the README, the examples, the command line, and
the reference. mkdocs runs it (the plugin gen-files)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import mkdocs_gen_files

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import reference  # noqa: E402  beside this file

# Files outside docs/ that have a page of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md",
}
# What the search leaves out: they name everything.
RECORDS = ("CHANGELOG.md", "benchmarks/RESULTS.md", "docs/internals.md", "docs/ops.md")
OPTIONS = """\
    options:
      heading: "{name}"
      toc_label: "{label}"
"""


def write(path: str, text: str) -> None:
    """A file of the site."""
    with mkdocs_gen_files.open(path, "w") as file:
        file.write(text)


def example_pages() -> None:
    """A page for each example: its docstring and its source."""
    rows = []
    paths = sorted((ROOT / "examples").glob("*.py"))
    for path in paths:
        source = path.read_text()
        about = ast.get_docstring(ast.parse(source)) or ""
        title = about.partition("\n\n")[0].replace("\n", " ")
        write(
            f"examples/{path.stem}.md",
            f'# {path.stem}\n\n{about}\n\n```python title="examples/{path.name}"\n{source}```\n',
        )
        rows.append(f"| [{path.name}]({path.stem}.md) | {title} |")
    write(
        "examples/index.md",
        "\n".join(["# Examples\n", "| file | what it does |", "|---|---|", *rows]),
    )


def command_page() -> None:
    """What `graphc --help` and the help of each command print."""

    def shown(*command: str) -> str:
        call = [sys.executable, "-m", "graphc", *command, "--help"]
        done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT)
        return done.stdout

    top = shown()
    commands = re.findall(r"^    ([a-z]+)  ", top, re.MULTILINE)
    parts = ["# Command line\n", f"```text\n{top}```\n"]
    for command in commands:
        parts += [f"## graphc {command}\n", f"```text\n{shown(command)}```\n"]
    write("reference/command-line.md", "\n".join(parts))


def entry_text(entry: reference.Entry) -> str:
    """One entry of the reference: an anchor by its public name, and its documentation."""
    lines = [f"[](){{#{entry.name}}}", *(f"[](){{#{other}}}" for other in entry.others), ""]
    lines.append(f"\n::: {entry.path}")
    lines.append(OPTIONS.format(name=entry.name, label=entry.name.removeprefix("gc.")))
    if entry.others:
        lines.append(f"Also: {', '.join(f'`{other}`' for other in entry.others)}.\n")
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text for a table."""
    return text.replace("|", "\\|")


def reference_pages() -> None:
    """A page for each topic, and one that lists them."""
    overview = ["# Reference\n", (ROOT / "docs/building/reference_intro.md").read_text(), ""]
    for topic, entries in reference.pages().items():
        parts = [f"# {topic.title}\n", topic.intro + "\n", "| name | what it is |", "|---|---|"]
        parts += [f"| [`{e.name}`][{e.name}] | {cell(e.summary)} |" for e in entries]
        parts += ["", *map(entry_text, entries)]
        write(f"reference/{topic.file}.md", "\n".join(parts))
        names = ", ".join(f"[`{e.name.removeprefix('gc.')}`][{e.name}]" for e in entries)
        overview += [f"## [{topic.title}]({topic.file}.md)\n", topic.intro + "\n", names + "\n"]
    write("reference/index.md", "\n".join(overview))
    titles = [(topic.title, topic.file) for topic in reference.TOPICS]
    titles += [("Command line", "command-line"), ("Nodes", "../ops"), ("Dtypes", "../dtypes")]
    summary = [("Reference", "index"), *titles]
    write("reference/SUMMARY.md", "".join(f"- [{title}]({file}.md)\n" for title, file in summary))


def names_page() -> None:
    """The index by the names that other libraries use."""
    tables = tomllib.loads((ROOT / "graphc/ir/other_libraries.toml").read_text())
    here = {name for entry in reference.entries() for name in (entry.name, *entry.others)}
    parts = [
        "# Names of other libraries\n",
        (ROOT / "docs/building/names_intro.md").read_text(),
        "",
    ]
    for library, table in tables.items():
        parts += [f"## {table.pop('title')}\n", f"| {library} | graphc |", "|---|---|"]
        parts += [f"| `{theirs}` | {cell(linked(ours, here))} |" for theirs, ours in table.items()]
        parts.append("")
    write("reference/names.md", "\n".join(parts))


def linked(text: str, names: set[str]) -> str:
    """`gc.name` in backquotes becomes a link to the reference."""
    pattern = re.compile(r"(?<!\[)`(gc\.[\w.]+)([^`]*)`(?!\])")

    def link(match: re.Match[str]) -> str:
        if match[1] not in names:
            return match[0]
        return f"[`{match[1]}{match[2]}`][{match[1]}]"

    return pattern.sub(link, text)


def moved(text: str, page: str) -> str:
    """The text of `page` (its path in the repository), with the links it has on the site."""
    place = Path(PAGES.get(page, page.removeprefix("docs/")))

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        if re.match(r"\w+:", target) or not target:
            return match[0]
        path = (ROOT / page).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
        if path in PAGES:
            path = PAGES[path]
        elif path == "examples":
            path = "examples/index.md"
        elif re.fullmatch(r"examples/\w+\.py", path):
            path = path.removesuffix("py") + "md"
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:  # the site has no page for this file
            return f"`{path}`"
        up = "../" * (len(place.parts) - 1)
        return f"[{text}]({up}{path}{anchor or ''})"

    return re.sub(r"\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def prose(text: str, names: set[str], page: str) -> str:
    """A page as the site shows it: links that lead somewhere, and names linked to the reference."""
    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(p if p.startswith("```") else linked(moved(p, page), names) for p in parts)


def written_pages() -> None:
    """The pages that are written by hand."""
    names = {name for entry in reference.entries() for name in (entry.name, *entry.others)}
    written = sorted((ROOT / "docs").rglob("*.md"))
    for path in [*written, *(ROOT / name for name in PAGES)]:
        page = path.relative_to(ROOT).as_posix()
        if not page.startswith("docs/building/"):
            text = prose(path.read_text(), names, page)
            hidden = "---\nsearch: {exclude: true}\n---\n" if page in RECORDS else ""
            write(PAGES.get(page, page.removeprefix("docs/")), hidden + text)


for name in ("iframe-worker.js", "site.css"):
    write(f"assets/{name}", Path(__file__).with_name(name).read_text())
example_pages()
command_page()
reference_pages()
names_page()
written_pages()
