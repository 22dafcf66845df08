"""From a distinguished name to a user name, by the rules that the brokers have.

Source: ``SslPrincipalMapper`` (KIP-371), whose regular expressions split the rules here too, down
to what it makes of references to groups that are not there; compared with it in
tests/unit/http/authentication/test_principal_mapping.py.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ESCAPED: Final = r"\\(?:[dDsSwW]|[^A-Za-z0-9])"
_MEMBER: Final = rf"(?!&&|--)(?:{_ESCAPED}|[^\[\]\\])"
_TOKEN: Final = re.compile(
    r"(?P<same>(?:[?*+]|\{[0-9]{1,4}(?:,(?:[0-9]{1,4})?)?\})[?+]?|\(\?[:=!]|\((?!\?)|[.^|)])"
    rf"|(?P<class>\[\^?)(?P<members>(?:{_MEMBER})+)\]"
    rf"|(?P<one>{_ESCAPED}|[^?*+{{(\[\\])",
    re.DOTALL,
)
_CLASS_ESCAPES: Final = frozenset("dDsSwW")
_CHARACTER: Final = re.compile(r"\\?.", re.DOTALL)
_ANY_CASE: Final = "(?i)"


class JavaPatternError(ValueError):
    """The expression is none, or Python would not understand it as Java does."""


def compile_java(pattern: str) -> re.Pattern[str]:
    r"""Return Java's regular expression as Python's; what Python reads differently is refused.

    Accepted are literals, ``.``, ``^`` at a beginning, ``$`` at an end, ``[...]`` of literals,
    ranges and classes, ``\d \D \s \S \w \W``, groups ``(...)``, ``(?:...)``, ``(?=...)``,
    ``(?!...)``, ``|``, the quantifiers ``? * + {n} {n,} {n,m}``, also lazy and possessive, and
    ``(?i)`` at the very beginning. The text must be one line.

    Source: ``java.util.regex.Pattern``.

    Raises:
        JavaPatternError: It is malformed, or has something that is not accepted here.
    """
    flags = re.ASCII
    rest = pattern.removeprefix(_ANY_CASE)
    if rest != pattern:
        flags |= re.IGNORECASE
    try:
        return re.compile("".join(_translate(rest)), flags)
    except (re.error, OverflowError) as error:
        message = f"{pattern!r} is no regular expression: {error}"
        raise JavaPatternError(message) from None


def _translate(pattern: str) -> Iterator[str]:
    """Yield each token as Python writes it; nested classes and intersections are Java's alone."""
    at = 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            refused = pattern[at : at + 1 + (pattern[at] == "\\")]
            message = f"{pattern!r} has {refused} at position {at + 1}, which is not accepted"
            raise JavaPatternError(message)
        at = found.end()
        if found["members"]:
            members = _CHARACTER.sub(lambda member: _escape(member[0]), found["members"])
            yield f"{found['class']}{members}]"
        else:
            yield found["same"] or (r"\Z" if found[0] == "$" else _escape(found[0]))


def _escape(character: str) -> str:
    """Return a character, or an escape, as Python writes it inside a class or outside."""
    if character == "-" or character[1:] in _CLASS_ESCAPES:
        return character
    return re.escape(character[-1])


_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")
_MAX_DIGITS: Final = 9
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_LINE_ENDS: Final = re.compile("[\n\r\x85\u2028\u2029]")

Replacement = tuple[str | int, ...]
"""Texts, and numbers of groups."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: Replacement = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = "".join(_replace_all(self.pattern, self.replacement, name))
        if self.case == "L":
            return mapped.lower()
        return mapped.upper() if self.case == "U" else mapped


class PrincipalMapping:
    """The rules, in order.

    Args:
        rules: As in ``ssl.principal.mapping.rules``: ``DEFAULT`` and
            ``RULE:pattern/replacement/[LU]``, with commas between them.

    Raises:
        ValueError: A rule is malformed, fails for every name, or has a regular expression that
            ``compile_java`` refuses.
    """

    def __init__(self, rules: str) -> None:
        if _CONTROL.search(rules):
            message = "the rules have control characters"
            raise ValueError(message)
        texts = [found[1] for found in _SPLITTER.finditer(rules.strip(" "))]
        self._rules = [rule for text in texts for rule in _read(text)]
        if not self._rules:
            message = "there is no rule"
            raise ValueError(message)

    def user_name(self, distinguished_name: str) -> str | None:
        """Return what the first rule that fits makes of the name; null where none fits.

        No rule fits a name of several lines, in which Java and Python differ.
        """
        if _LINE_ENDS.search(distinguished_name):
            return None
        mapped = (rule.apply(distinguished_name) for rule in self._rules)
        return next((name for name in mapped if name is not None), None)


def _read(text: str) -> Iterator[_Rule]:
    parsed = _PARSER.match(text)
    if parsed is None or parsed.end() != len(text):
        message = f"{text!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]"
        raise ValueError(message)
    if parsed[1] is not None:
        yield _Rule()
    elif parsed[2] is not None:
        pattern = compile_java(parsed[2])
        replacement = tuple(_items(_literal(parsed[4], pattern.groups), pattern.groups))
        yield _Rule(pattern, replacement, parsed[6])


def _literal(replacement: str, groups: int) -> str:
    """Escape references to groups that are not there, exactly as Kafka does.

    Where there are several it escapes all but the first at a wrong position; ``_items`` finds it.
    """
    value = replacement
    for found in _REFERENCE.finditer(replacement) if groups else ():
        digits = found[1]
        if digits.startswith("0"):
            continue
        if len(digits) > _MAX_DIGITS:
            message = f"the reference ${digits} is too large"
            raise ValueError(message)
        number = int(digits)
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            at = found.start(1) - 1
            value = f"{value[:at]}\\{value[at:]}"
    return value


def _items(replacement: str, groups: int) -> Iterator[str | int]:
    """Read a replacement. Source: ``Matcher.appendReplacement``."""
    at = 0
    while at < len(replacement):
        character, following = replacement[at], replacement[at + 1 : at + 2]
        at += 1
        if character not in "\\$":
            yield character
            continue
        if not following or (character == "$" and following not in "0123456789"):
            message = f"the replacement {replacement!r} has a {character} that refers to nothing"
            raise ValueError(message)
        at += 1
        if character == "\\":
            yield following
            continue
        number = int(following)
        while at < len(replacement) and replacement[at] in "0123456789":
            longer = number * 10 + int(replacement[at])
            if longer > groups:
                break
            number, at = longer, at + 1
        if number > groups:
            message = f"the replacement {replacement!r} refers to a group that is not there"
            raise ValueError(message)
        yield number


def _replace_all(pattern: re.Pattern[str], replacement: Replacement, name: str) -> Iterator[str]:
    """Replace every match, each looked for as Java does, which is not as ``re.sub`` does."""
    at = copied = 0
    while at <= len(name) and (found := pattern.search(name, at)) is not None:
        yield name[copied : found.start()]
        yield from (item if isinstance(item, str) else found[item] or "" for item in replacement)
        copied = found.end()
        at = copied + (found.end() == found.start())
    yield name[copied:]
