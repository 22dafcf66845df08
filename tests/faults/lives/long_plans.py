"""kill -9 at every named point while a plan is applied."""

from app.localdev.postgres import LocalPostgres
from tests.faults.lives.conftest import NewWorld
from tests.faults.lives.test_plans import HELD, killed_at


async def test_an_owner_holds_what_was_applied_wherever_it_was_killed(
    new_world: NewWorld, lives_postgres: LocalPostgres
) -> None:
    await killed_at(tuple(HELD), *new_world(lives_postgres))
