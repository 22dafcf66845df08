"""The file of a quota callback: what it takes, and how it says what is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.documents.callbacks import CallbackFileError, read_callback
from app.domain.callbacks.callback import QuotaType
from app.domain.callbacks.foreign import ForeignCallback
from app.domain.callbacks.groups import Groups
from app.domain.callbacks.kafka_rules import KAFKA_RULES
from app.domain.callbacks.partition_share import PartitionShare
from app.domain.callbacks.strimzi_static import STRIMZI_STATIC, StrimziStatic

HERE = "tests.unit.domain.test_callbacks"


def file(folder: Path, model: str, options: Any = None, **others: Any) -> Path:
    for name in ("groups_file", "topics_file"):
        if isinstance(options, dict) and isinstance(options.get(name), dict):
            (folder / "beside.yaml").write_text(yaml.safe_dump(options[name]))
            options = {name: "beside.yaml"}
    document = {"class": "com.example.Q", "model": model, **others}
    if options is not None:
        document["options"] = options
    path = folder / "callback.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_strimzi_s_settings(tmp_path: Path):
    options = {"produce": 100_000, "request": 12.5, "excluded_principals": ["User:boss"]}
    path = file(tmp_path, "strimzi-static", options, **{"class": STRIMZI_STATIC})
    configured = read_callback(path)
    assert configured.class_name == STRIMZI_STATIC
    limits = {QuotaType.PRODUCE: 100_000.0, QuotaType.REQUEST: 12.5}
    assert configured.model == StrimziStatic(limits, frozenset({"boss"}))


def test_files_of_groups_and_topics_are_beside_it(tmp_path: Path):
    groups = {"ops": {"users": ["alice"], "client-ids": ["etl"]}, "none": {}}
    model = read_callback(file(tmp_path, "groups", {"groups_file": groups})).model
    assert model == Groups({"alice": "ops"}, {"etl": "ops"})
    topics = {"users": {"alice": ["orders"]}, "client-ids": {"etl": ["bills"]}}
    share = read_callback(file(tmp_path, "partition-share", {"topics_file": topics})).model
    assert isinstance(share, PartitionShare)
    assert share.topics == {"orders", "bills"}
    assert share.of({"user": "alice", "client-id": "etl"}) == {"orders"}


def test_kafka_s_rules_and_a_class_of_your_own(tmp_path: Path):
    assert read_callback(file(tmp_path, "kafka")).model is KAFKA_RULES
    model = read_callback(file(tmp_path, f"{HERE}:Recording", {"factor": 3})).model
    assert isinstance(model, ForeignCallback)
    assert model.name == f"{HERE}:Recording"


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        ("static", {}, "'static' is no model; there are kafka, strimzi-static, groups"),
        ("kafka", {"produce": 1}, "'produce' is unknown in options of kafka, which takes nothing"),
        ("strimzi-static", {"product": 1}, "'product' is unknown in options of strimzi-static"),
        ("strimzi-static", {"produce": 0}, "produce is to be a number over 0"),
        ("strimzi-static", {"produce": True}, "produce is to be a number over 0"),
        ("strimzi-static", {"excluded_principals": ["boss"]}, "'boss' is no principal"),
        ("strimzi-static", [], "options is to be one mapping"),
        ("groups", {}, "groups_file is to be a text"),
        ("groups", {"groups_file": "none.yaml"}, "none.yaml cannot be read: No such file"),
        ("groups", {"groups_file": {"a": {"user": []}}}, "'user' is unknown in group 'a'"),
        (
            "groups",
            {"groups_file": {"a": {"users": ["u"]}, "b": {"users": ["u"]}}},
            "'u' of users is in two groups: 'a', 'b'",
        ),
        (
            "partition-share",
            {"topics_file": {"users": {"u": "t"}}},
            "topics of 'u' is to be a list",
        ),
        ("no.such.module:Class", {}, "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Nobody", {}, "cannot be imported: AttributeError"),
        (f"{HERE}:Recording", {"speed": 1}, "was not made: TypeError"),
    ],
)
def test_a_wrong_file_is_a_sentence(tmp_path: Path, model: str, options: Any, sentence: str):
    path = file(tmp_path, model, options)
    with pytest.raises(CallbackFileError) as caught:
        read_callback(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is to be one mapping"),
        ("a: [", "is not YAML"),
        ("class: a\nclass: b\nmodel: kafka\n", "is not YAML"),
        ("class: a\nmodel: kafka\noption: {}\n", "'option' is unknown in the file"),
        ("model: kafka\n", "class is to be a text"),
        ("class: a\nmodel: 1\n", "model is to be a text"),
    ],
)
def test_a_file_that_is_not_yaml_or_lacks_something(tmp_path: Path, text: str, sentence: str):
    path = tmp_path / "callback.yaml"
    path.write_text(text)
    with pytest.raises(CallbackFileError, match=sentence):
        read_callback(path)
