"""What several tests of the service start from."""

import pytest

from tests.unit.service.alter_world import World


@pytest.fixture
def world() -> World:
    """A service that alters, on fakes."""
    return World()
