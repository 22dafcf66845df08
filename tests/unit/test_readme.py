"""The README, and the other documents, say what is."""

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

from app.client.arguments import SUBCOMMANDS, parser
from app.client.configuration import CLUSTER_VARIABLE
from app.domain.validation import judge
from app.http.alterations.models import AlterationRequest
from app.http.application import openapi_document
from app.http.plans.routes import PlanRequest
from app.http.resolve.routes import ResolveRequest
from app.http.validation import parse_object, validated
from app.localdev.jars import KAFKA_VERSION, OTHER_KAFKA_VERSIONS
from app.service.ports.alterations import Failpoints
from app.setting_types import PREFIX
from app.settings import GONE, LOCAL_ONLY, Settings, describe, fields

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]

UNDOCUMENTED_PATHS = {"/docs", "/openapi.json", "/clusters/{name}/quotas"}
"""Served, and not in the OpenAPI document."""

NEEDED_WITHOUT_A_FILE = {"kafka_bootstrap_servers"}
"""Where no file of clusters takes their place."""

SCRIPT_VARIABLES = {"QUOTAS_OWNER_PASSWORD", "QUOTAS_SERVICE_PASSWORD"}


def blocks(language: str, text: str = EXAMPLES) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def configuration_table() -> str:
    lines = ["| Variable | Default | Description |", "|---|---|---|"]
    lines += [
        f"| `{PREFIX}{name.upper()}` | {_default(name)} | {describe(name)} |"
        for name in Settings.model_fields
    ]
    return "\n".join(lines) + "\n"


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    value = field.default
    if field.is_required() or name in NEEDED_WITHOUT_A_FILE:
        return "needed"
    if value in (None, (), frozenset(), Failpoints()):
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value.value if isinstance(value, StrEnum) else value}`"


def test_the_configuration_table_is_that_of_the_settings():
    assert configuration_table() in CONFIGURATION


def options_of(found: argparse.ArgumentParser) -> set[str]:
    """Return those that its help lists."""
    actions = found._actions
    listed = [each for each in actions if each.help != argparse.SUPPRESS]
    return {word for each in listed for word in each.option_strings if word.startswith("--")}


def test_every_option_of_the_command_is_on_its_page_and_no_other():
    main = parser(tuple(SUBCOMMANDS))
    assert main.subcommands is not None
    options = options_of(main).union(*map(options_of, main.subcommands.values()))
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", page))
    assert options - named == set()
    assert named - options == OF_OTHER_COMMANDS


OF_OTHER_COMMANDS = {"--tag", "--target"}
"""Those of ``docker build``."""


def test_the_files_of_secrets_are_listed():
    files = [name for name in fields() if name not in Settings.model_fields]
    assert files
    for name in files:
        assert f"`{PREFIX}{name.upper()}`" in CONFIGURATION


def test_it_names_the_versions_of_kafka_that_the_tests_run_on():
    *others, last = OTHER_KAFKA_VERSIONS
    tested = (
        f"certified on {KAFKA_VERSION}; the conformance tests run on {', '.join(others)} and {last}"
    )
    assert tested in " ".join(README.split())
    assert f"(default {KAFKA_VERSION}; {', '.join(others)} or {last}" in " ".join(
        CONFIGURATION.split()
    )


def test_the_first_block_runs_it_and_tests_it():
    commands = [line.split("#")[0].strip() for line in blocks(r"\w*", README)[0].splitlines()]
    assert commands == ["make run", "make test"]


def matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) is not None


def paths() -> set[str]:
    return set(re.findall(r"localhost:8080(/[\w./$-]*)", EXAMPLES))


def test_every_route_has_an_example_and_every_path_of_an_example_is_a_route():
    routes = set(openapi_document()["paths"]) | UNDOCUMENTED_PATHS
    unknown = {path for path in paths() if not any(matches(route, path) for route in routes)}
    missing = {route for route in routes if not any(matches(route, path) for path in paths())}
    assert (unknown, missing - {"/readyz"}) == (set(), set())


def test_every_answer_in_the_examples_is_json():
    assert len(blocks("json")) == 6
    for block in blocks("json"):
        json.loads(block)


def bodies() -> Iterator[tuple[str, bytes]]:
    for block in blocks("sh"):
        yield from re.findall(r"localhost:8080(/\S+) -d '(.*?)'", block, re.DOTALL)


def test_every_body_in_the_examples_can_be_read_and_only_that_of_an_error_breaks_a_rule():
    broken = []
    for path, body in bodies():
        document = parse_object(body.encode())
        if path == "/quotas/plans":
            assert not validated(PlanRequest, document).violations
            continue
        if path == "/quotas/resolve":
            proposals = validated(ResolveRequest, document).changes
        else:
            assert path == "/quotas/alterations"
            proposals = validated(AlterationRequest, document).changes
        broken.append([violation.code for violation in judge(proposals, {}).violations])
    assert broken == [[], [], [], [], ["fraction", "below-minimum"]]


def test_every_link_leads_somewhere(subtests: pytest.Subtests):
    for document in DOCUMENTS:
        with subtests.test(document=document):
            for target in links(document):
                assert target.startswith("https://") or (document.parent / target).exists(), target


PATH: Final = re.compile(
    r"`((?:app|tests|scripts|benchmarks|migrations|deploy|openapi|docs)/[\w./-]+)`"
)
"""A file or folder of this repository, as pages name it."""


def test_every_path_that_a_page_names_exists(subtests: pytest.Subtests):
    # Decision records say what was, and when.
    pages = [page for page in DOCUMENTS if page.parent.name != "adr"]
    named = {page: PATH.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert sum(map(len, named.values())) > 100
    for page, paths in named.items():
        with subtests.test(page=page):
            assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_picture_of_the_layers_is_the_contract():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(
        contract["layers"] for contract in contracts if contract.get("containers") == ["app"]
    )
    picture = (ROOT / "docs/architecture.md").read_text().split("```")[1]
    assert dict(re.findall(r'(L\d+)\["([^"]+)"\]', picture)) == {
        f"L{number}": layer for number, layer in enumerate(layers, 1)
    }
    assert re.findall(r"(L\d+)[^>\n]*--> (L\d+)", picture) == [
        (f"L{number}", f"L{number + 1}") for number in range(1, len(layers))
    ]


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = CONTRIBUTING[CONTRIBUTING.index("**A quota key**") : CONTRIBUTING.index("## Names")]


def test_each_file_and_name_of_the_recipes_is_there(subtests: pytest.Subtests):
    files = set(re.findall(r"`([a-z_/]+\.(?:py|yaml|toml|md))`", RECIPES))
    names = set(re.findall(r"`(_?[A-Za-z]{3}[A-Za-z_]*)`", RECIPES))
    assert (len(files), len(names)) > (20, 10)
    sources = [path for folder in ("app", "tests") for path in (ROOT / folder).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    code += (ROOT / "app/http/openapi.yaml").read_text(encoding="utf-8")
    for file in files:
        with subtests.test(file=file):
            assert (ROOT / file).is_file()
    for name in names:
        with subtests.test(name=name):
            assert re.search(rf"\b{name}\b", code)


def test_links_are_found():
    assert len({target for document in DOCUMENTS for target in links(document)}) > 30


def links(document: Path) -> list[str]:
    """Return the addresses of a document's links, without what is behind a #."""
    return re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))


def test_every_variable_named_is_a_setting(subtests: pytest.Subtests):
    for document in DOCUMENTS:
        with subtests.test(document=document):
            named = set(
                re.findall(
                    r"(?<![A-Z_])QUOTAS_[A-Z_]*[A-Z]\b", document.read_text(encoding="utf-8")
                )
            )
            defined = {PREFIX + name.upper() for name in (*fields(), *GONE)}
            assert named <= defined | LOCAL_ONLY | SCRIPT_VARIABLES | {CLUSTER_VARIABLE}
