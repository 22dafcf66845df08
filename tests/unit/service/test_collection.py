"""What is built without a look for cycles: lasting things are left out of later looks, too."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from app.service import collection
from app.service.collection import without_collection


class Thing:
    """Something that the collector looks at."""


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_nothing_is_collected_in_the_block_and_all_is_as_before_after_the_outermost():
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_block_that_fails_leaves_the_collector_as_it_was():
    with pytest.raises(KeyError), without_collection():
        raise KeyError
    assert gc.isenabled()


def test_what_lasts_is_not_looked_at_again_and_is_freed_when_nobody_refers_to_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(collection, "LASTING", 500)
    with without_collection():
        built = [Thing() for _ in range(1000)]
    assert gc.get_freeze_count() >= 1000
    last = weakref.ref(built[-1])
    built.clear()
    assert last() is None


def test_a_block_that_leaves_little_behind_is_looked_at_as_usual():
    with without_collection():
        built = [Thing() for _ in range(1000)]
    assert gc.get_freeze_count() == 0
    assert len(built) == 1000
