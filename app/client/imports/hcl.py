"""Terraform's own language, as far as resources need it: literals are read, expressions named."""

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Final, NamedTuple, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.client.errors import UsageError
from app.client.imports.collection import Collection
from app.client.imports.terraform import Resource, read_resource, with_name
from app.client.imports.trees import EXPRESSION, LITERAL, NULL, lose_unread

_BLOCK: Final = re.compile(
    r'^(?:(?:resource|data)\s+"[^"\n]+"\s+"[^"\n]+"|(?:provider|variable|module|output)\s+"[^"\n]+"'
    r"|terraform|locals)\s*\{",
    re.MULTILINE,
)
_STR: Final = "tag:yaml.org,2002:str"
_INT: Final = "tag:yaml.org,2002:int"
_BOOL: Final = "tag:yaml.org,2002:bool"
_MAP: Final = "tag:yaml.org,2002:map"
_SEQ: Final = "tag:yaml.org,2002:seq"

_DEEPEST: Final = 50
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r]+|\#[^\n]*|//[^\n]*|/\*[\s\S]*?\*/)
    |(?P<line>\n)
    |(?P<heredoc><<-?(?P<mark>[A-Za-z_][\w-]*)\n(?:.*\n)*?[ \t]*(?P=mark)[ \t]*(?=\n|$))
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_][\w-]*)
    |(?P<mark2>[=!<>]=|=>|&&|\|\||\.\.\.|[^\w\s"])""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


class _Token(NamedTuple):
    """A token: its kind, its text as written, its line from 0; of a text what it stands for."""

    kind: str
    text: str
    line: int
    value: str = ""


def is_hcl(text: str) -> bool:
    """Tell whether a text has blocks of Terraform's language at the start of lines."""
    return _BLOCK.search(text) is not None


def read_hcl(text: str, into: Collection) -> None:
    """Read the resources of a configuration.

    What is computed (variables, functions, templates) is lost with its name: this file does not
    have its value.

    Raises:
        UsageError: It is not Terraform's language.
    """
    lines = text.replace("\r\n", "\n")
    reader = _Reader(into.file, list(_tokens(into.file, lines)))
    blocks = list(reader.blocks())
    for block in blocks:
        if block.kind == "resource" and len(block.labels) == 2:
            address = ".".join(block.labels)
            read_resource(Resource(address, block.labels[0], with_name(block.body)), into)
        elif block.kind == "module":
            name = "".join(block.labels[:1])
            into.warn(block.line + 1, f"module {name}: its resources stand in files of its own")
    lose_unread([block.body for block in blocks], into)


class _Block(NamedTuple):
    kind: str
    labels: Sequence[str]
    body: MappingNode
    line: int


def _tokens(file: str, text: str) -> Iterator[_Token]:
    at = line = 0
    while at < len(text):
        if text[at] == '"':
            token, end = _text_at(file, text, at, line)
            yield token
        else:
            found = _TOKEN.match(text, at)
            if found is None:
                _refuse(file, line, f"{text[at]!r} begins nothing")
            end = found.end()
            kind = found.lastgroup or ""
            if found["heredoc"] is not None:
                yield _heredoc(found["heredoc"], line)
            elif found["blank"] is None:
                yield _Token("mark" if kind == "mark2" else kind, found[0], line)
        line += text.count("\n", at, end)
        at = end


_FILLED_IN: Final = re.compile(r"(?<!\$)\$\{|(?<!%)%\{")


def _heredoc(written: str, line: int) -> _Token:
    """Return a text of several lines; after ``<<-`` it has lost the blanks that all of them have.

    Source: HCL Native Syntax Specification, "Templates".
    """
    mark, *lines = written.split("\n")[:-1]
    if mark.startswith("<<-"):
        blanks = min([len(each) - len(each.lstrip(" ")) for each in lines], default=0)
        lines = [each[blanks:] for each in lines]
    body = "".join(f"{each}\n" for each in lines)
    if _FILLED_IN.search(body):
        return _Token("template", written, line)
    return _Token("text", written, line, body.replace("$${", "${").replace("%%{", "%{"))


def _text_at(file: str, text: str, start: int, line: int) -> tuple[_Token, int]:
    """Return a quoted text and where it ends; what is in ``${}`` may have quotes of its own."""
    value: list[str] = []
    at, is_template = start + 1, False
    while at < len(text) and text[at] != "\n":
        two = text[at : at + 2]
        if text[at] == '"':
            kind = "template" if is_template else "text"
            return _Token(kind, text[start : at + 1], line, "".join(value)), at + 1
        if text[at : at + 3] in ("$${", "%%{"):
            value.append(text[at + 1 : at + 3])
            at += 3
        elif two in ("${", "%{"):
            is_template = True
            at = _end_of_template(text, at + 2)
        elif two[:1] == "\\":
            value.append(_ESCAPES.get(two[1:], two))
            at += 2
        else:
            value.append(text[at])
            at += 1
    return _refuse(file, line, "a text does not end")


def _end_of_template(text: str, at: int) -> int:
    depth, is_quoted = 1, False
    while at < len(text) and depth and text[at] != "\n":
        if text[at] == '"' and text[at - 1] != "\\":
            is_quoted = not is_quoted
        elif not is_quoted:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def _refuse(file: str, line: int, what: str) -> NoReturn:
    raise UsageError(
        f"{file}:{line + 1}: this is not Terraform's language as it is read here ({what}); "
        "terraform show -json prints what it stands for."
    )


def _scalar(value: str, tag: str, line: int) -> ScalarNode:
    return ScalarNode(tag, value, _mark(line))


def _mark(line: int) -> yaml.Mark:
    return yaml.Mark("", 0, line, 0, None, 0)


class _Reader:
    """Reads tokens by their first letters; the nodes are those of YAML."""

    def __init__(self, file: str, tokens: Sequence[_Token]) -> None:
        self._file = file
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def blocks(self) -> Iterator[_Block]:
        """Yield the blocks at the top; the file ends behind the last one."""
        while self._skip_lines() is not None:
            name = self._next()
            if name.kind != "word":
                _refuse(self._file, name.line, f"{name.text} begins no block")
            yield self._block(name)

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> _Token:
        token = self._peek()
        if token is None:
            _refuse(self._file, self._tokens[-1].line, "it ends too early")
        self._at += 1
        return token

    def _skip_lines(self, also: str = "") -> _Token | None:
        while (token := self._peek()) is not None and (token.kind == "line" or token.text == also):
            self._at += 1
        return token

    def _block(self, name: _Token) -> _Block:
        labels = []
        while (token := self._next()).text != "{":
            if token.kind not in ("word", "text"):
                _refuse(self._file, token.line, f"{token.text} follows {name.text}")
            labels.append(token.value or token.text)
        return _Block(name.text, labels, self._body(name.line), name.line)

    def _body(self, line: int) -> MappingNode:
        """Read attributes and blocks up to the brace; blocks of a name are a list."""
        self._enter(line)
        members: list[tuple[ScalarNode, Node]] = []
        blocks: dict[str, list[Node]] = {}
        while (token := self._skip_lines()) is None or token.text != "}":
            name = self._next()
            key = _scalar(name.value or name.text, _STR, name.line)
            following = self._peek()
            if following is not None and following.text == "=":
                self._at += 1
                members.append((key, self._value()))
                continue
            block = self._block(name)
            if key.value not in blocks:
                blocks[key.value] = []
                members.append((key, SequenceNode(_SEQ, blocks[key.value], _mark(name.line))))
            blocks[key.value].append(block.body)
        self._leave()
        return MappingNode(_MAP, members, _mark(line))

    def _enter(self, line: int) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            _refuse(self._file, line, f"over {_DEEPEST} blocks are nested in each other")

    def _leave(self) -> None:
        self._at += 1
        self._depth -= 1

    def _value(self) -> Node:
        """Read a literal, or all of an expression as its text."""
        start = self._at
        token = self._next()
        node = self._literal(token)
        if node is not None and self._is_end():
            return node
        self._at = start
        return self._expression()

    def _literal(self, token: _Token) -> Node | None:
        if token.kind == "text":
            return _scalar(token.value, LITERAL, token.line)
        if token.kind == "number":
            return _scalar(token.text, _INT, token.line)
        if token.text == "null":
            return _scalar("null", NULL, token.line)
        if token.text in ("true", "false"):
            return _scalar(token.text, _BOOL, token.line)
        if token.text == "{" and not self._is_loop():
            return self._mapping(token)
        if token.text == "[" and not self._is_loop():
            return self._list(token)
        return None

    def _is_loop(self) -> bool:
        following = self._skip_lines()
        return following is not None and following.text == "for"

    def _is_end(self) -> bool:
        token = self._peek()
        return token is None or token.kind == "line" or token.text in (",", "}", "]")

    def _mapping(self, start: _Token) -> MappingNode:
        self._enter(start.line)
        members: list[tuple[ScalarNode, Node]] = []
        while (token := self._skip_lines(",")) is None or token.text != "}":
            name = self._next()
            key = _scalar(name.value or name.text, _STR, name.line)
            if name.kind not in ("word", "text") or self._next().text not in ("=", ":"):
                while (token := self._next()).text not in ("=", ":"):
                    key.value += token.text
                key.value = f"${{{key.value}}}"
            members.append((key, self._value()))
        self._leave()
        return MappingNode(_MAP, members, _mark(start.line))

    def _list(self, start: _Token) -> SequenceNode:
        self._enter(start.line)
        found: list[Node] = []
        while (token := self._skip_lines(",")) is None or token.text != "]":
            found.append(self._value())
        self._leave()
        return SequenceNode(_SEQ, found, _mark(start.line))

    def _expression(self) -> ScalarNode:
        """Read up to the end of the line or the item; a product of numbers is computed."""
        first = self._next()
        tokens, depth = [first], _step(first)
        while (token := self._peek()) is not None and (depth or not self._is_end()):
            depth += _step(token)
            tokens.append(self._next())
        factors = [token.text for token in tokens[::2]]
        is_product = all(token.text == "*" for token in tokens[1::2]) and len(tokens) % 2
        if is_product and all(token.kind == "number" for token in tokens[::2]):
            return _scalar(repr(prod(float(factor) for factor in factors)), _INT, first.line)
        words = " ".join(token.text for token in tokens if token.kind != "line")
        return _scalar(words, EXPRESSION, first.line)


def _step(token: _Token) -> int:
    return {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(token.text, 0)
