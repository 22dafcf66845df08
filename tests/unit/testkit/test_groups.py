from pathlib import Path

from tests.testkit.groups import GROUPS, group_of

ROOT = Path(__file__).resolve().parents[3]


def test_every_folder_and_file_of_the_table_is_there():
    assert [path for path in GROUPS if not (ROOT / path).exists()] == []


def test_the_deepest_folder_wins():
    assert group_of("tests/pipeline/history/test_fold.py") == "a broker"
    assert group_of("tests/pipeline/ingest/test_formats.py") == "Spark"


def test_a_file_of_no_group_is_a_group():
    assert group_of("tests/unit/test_java.py") == "tests/unit/test_java.py"
    assert group_of("tests/integration/http2/test_it.py") == "tests/integration/http2/test_it.py"
