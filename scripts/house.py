"""Count each area's lines, files and words; fail where a limit of `house.toml` is exceeded.

The limits are what was reached: whoever gets below one lowers it. The targets are where this goes.
"""

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SMALL_LINES = 60
FIGURES = ("lines", "files", "median", "small", "words")


@dataclass(frozen=True)
class Area:
    """The figures of an area.

    Attributes:
        lines: Of all its Python files.
        files: Their number.
        median: Of their lines; an `__init__.py` of a docstring alone is not counted.
        small: Files under 60 lines for which the table has no reason.
        words: Names with a word in them that the table does not want; in a document, such words.
    """

    name: str
    lines: int
    files: int
    median: int
    small: int
    words: int


def main() -> int:
    """Print the figures, and the violations; return the exit code."""
    gc.disable()  # Syntax trees are objects by the million, and free without it.
    table = tomllib.loads((ROOT / "scripts" / "house.toml").read_text())
    areas = [measure(ROOT, area, table) for area in table["area"]]
    print(render(areas, table["area"]))
    violations = [*violations_of(areas, table["area"]), *dead_reasons(ROOT, table["small"])]
    print(*violations, sep="\n")
    return 1 if violations else 0


def measure(root: Path, area: Mapping[str, Any], table: Mapping[str, Any]) -> Area:
    """Count an area's files."""
    files = list(files_of(root, area["paths"]))
    lines = {file: len(file.read_text().splitlines()) for file in files}
    modules = [file for file in files if not is_docstring_alone(file)]
    small = [file for file in modules if lines[file] < SMALL_LINES]
    return Area(
        name=area["name"],
        lines=sum(lines.values()),
        files=len(files),
        median=round(median([lines[file] for file in modules] or [0])),
        small=sum(str(file.relative_to(root)) not in table["small"] for file in small),
        words=sum(
            name not in table["contract"]
            for file in files
            for name in unwanted_words(file, table["words"])
        ),
    )


def files_of(root: Path, paths: Sequence[str]) -> Iterator[Path]:
    """Yield the Python files below folders, or the files that match a pattern."""
    for path in paths:
        yield from sorted(root.glob(path if Path(path).suffix else f"{path}/**/*.py"))


def is_docstring_alone(file: Path) -> bool:
    """Return whether a file is an `__init__.py` without code."""
    return file.name == "__init__.py" and len(ast.parse(file.read_text()).body) <= 1


def unwanted_words(file: Path, words: Sequence[str]) -> list[str]:
    """Return the names that a module defines, its own among them, with an unwanted word in them.

    Of a document: the unwanted words outside code and addresses.
    """
    if file.suffix == ".md":
        prose = re.sub(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)", " ", file.read_text())
        found = re.findall("[a-z]+", prose.lower())
        return [word for word in found if word in words or word.removesuffix("s") in words]
    names = {file.stem, *names_of(file.read_text())}
    return sorted(name for name in names if has_word(name, words))


@cache
def names_of(source: str) -> set[str]:
    """Return the names of functions, classes, parameters, variables and attributes of a module.

    Areas overlap, so each is parsed once.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(ctx=ast.Store()):
                names.add(node.attr)
            case ast.arg():
                names.add(node.arg)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
    return names


def has_word(name: str, words: Sequence[str]) -> bool:
    """Return whether a name has one of the words in it, in singular or plural.

    `one` counts at the end only: there it stands for a noun.
    """
    found = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")
    unwanted = any(word in words or word.removesuffix("s") in words for word in found)
    return unwanted or found[-1] in ("one", "ones")


def render(areas: Sequence[Area], table: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as a table: now / limit / target."""
    lines = ["".join(["now/limit/target".ljust(18), *(name.rjust(22) for name in FIGURES)])]
    for area, limits in zip(areas, table, strict=True):
        cells = [
            "/".join(
                str(value)
                for value in (
                    getattr(area, name),
                    limits.get(name, ""),
                    limits.get(f"target_{name}", ""),
                )
            )
            for name in FIGURES
        ]
        lines.append("".join([area.name.ljust(18), *(cell.rjust(22) for cell in cells)]))
    return "\n".join(lines)


def violations_of(areas: Sequence[Area], table: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each limit that is exceeded; the median's is a lower one."""
    for area, limits in zip(areas, table, strict=True):
        for name in FIGURES:
            value, limit = getattr(area, name), limits.get(name)
            if limit is None:
                continue
            if value < limit if name == "median" else value > limit:
                yield f"{area.name}: {name} is {value}, the limit is {limit}."


def dead_reasons(root: Path, small: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each reason that no small file needs any more."""
    for path in small:
        file = root / path
        if not file.is_file() or len(file.read_text().splitlines()) >= SMALL_LINES:
            yield f"{path} is no small file any more: drop its reason."


if __name__ == "__main__":
    sys.exit(main())
