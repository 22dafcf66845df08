"""Find names and prose with a word that the house does not use; fail where there is one.

The words are those of `house.toml`: each stood for five things at once.
"""

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "benchmarks", "migrations", "scripts", "tests")
DOCUMENTS = ("*.md", "docs/**/*.md")


def main() -> int:
    """Print each unwanted word with its file; return the exit code."""
    gc.disable()  # Syntax trees are objects by the million, and free without it.
    table = tomllib.loads((ROOT / "scripts" / "house.toml").read_text())
    violations = list(violations_of(ROOT, table["words"], table["contract"]))
    print(*violations, sep="\n")
    return 1 if violations else 0


def violations_of(root: Path, words: Sequence[str], contract: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each file and unwanted word; names of the contract stay."""
    for file in files_of(root, (*FOLDERS, *DOCUMENTS)):
        for name in unwanted_words(file, words):
            if name not in contract:
                yield f"{file.relative_to(root)}: {name} has a word that the house does not use."


def files_of(root: Path, paths: Sequence[str]) -> Iterator[Path]:
    """Yield the Python files below folders, or the files that match a pattern."""
    for path in paths:
        yield from sorted(root.glob(path if Path(path).suffix else f"{path}/**/*.py"))


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


def names_of(source: str) -> set[str]:
    """Return the names of functions, classes, parameters, variables and attributes of a module."""
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


if __name__ == "__main__":
    sys.exit(main())
