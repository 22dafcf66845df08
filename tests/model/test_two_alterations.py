"""Which lock, fence and read keep the audit log true, over every state of two alterations."""

import pytest

from tests.model.two_alterations import Design, Lock, explore

BOTH = {"contradiction", "wrong last value"}


def test_only_a_durable_slot_with_a_fence_and_fresh_reads_is_never_wrong(subtests: pytest.Subtests):
    for design, states, violations in [
        (Design(Lock.NONE, fence=False, fresh_reads=True), 262, BOTH),
        (Design(Lock.SESSION, fence=False, fresh_reads=True), 227, BOTH),
        (Design(Lock.SESSION, fence=True, fresh_reads=True), 157, BOTH),
        (Design(Lock.DURABLE, fence=False, fresh_reads=True), 169, BOTH),
        (Design(Lock.DURABLE, fence=True, fresh_reads=False), 217, BOTH),
        (Design(Lock.DURABLE, fence=True, fresh_reads=True), 89, set()),
        (Design(Lock.DURABLE, fence=True, fresh_reads=True, applies_again=True), 323, BOTH),
    ]:
        with subtests.test(states=states):
            found = explore(design)
            assert (found.states, found.violations) == (states, violations)
