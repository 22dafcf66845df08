"""The blocks of a Markdown page that are meant to be pasted, as one script of bash.

A block of the language ``sh`` is pasted; the others show. A comment before a block says otherwise:

``<!-- not run: why -->``
    It needs what a test does not have.
``<!-- refused -->``
    Each of its calls of ``curl`` is answered with an error.
``<!-- long -->``
    It takes minutes: it is run where ``TEST_SIZE`` is ``long``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.testkit.sizes import size

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    str(page.relative_to(ROOT)) for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
)

_BLOCK: Final = re.compile(
    r"^ *(?:<!-- (?P<marker>[^>]*) -->\n *)?```sh\n(?P<code>.*?)^ *```", re.MULTILINE | re.DOTALL
)
_MARKERS: Final = re.compile(r"not run: .+|refused|long|")

_BEGIN: Final = r"""set -eu -o pipefail
curl() { command curl --silent --show-error --fail-with-body --max-time 60 "$@"; }
"""
_REFUSED: Final = r"""curl() { ! command curl --silent --fail-with-body --max-time 60 "$@"; }
"""


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        line: Of the page, counted from 1.
        marker: Of the comment before it; empty where there is none.
        code: To paste.
    """

    line: int
    marker: str
    code: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page that are meant to be pasted, in order.

    Raises:
        ValueError: A marker that nobody reads.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code"))
        marker = found["marker"] or ""
        if not _MARKERS.fullmatch(marker):
            raise ValueError(f"{page}:{line}: {marker!r} is no marker.")
        yield Block(line + 1, marker, found["code"])


def script_of(page: str, address: str) -> str:
    """Return the blocks that are run, as a script that ends at the first command that fails.

    Args:
        page: From the root of the project.
        address: ``host:port`` of the service, instead of ``localhost:8080``.
    """
    skipped = ("not run: ", *size(("long",), ()))
    script = [_BEGIN]
    for block in blocks_of(page):
        if not block.marker.startswith(skipped):
            begin = _REFUSED if block.marker == "refused" else _BEGIN
            script.append(f"{begin}echo '{page}:{block.line}' >&2\n{block.code}")
    return "".join(script).replace("localhost:8080", address)
