"""Several processes that serve as one: on the same ports, with one parent and one end."""

import gc
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.http.workers.team import Team, new_team
from app.listeners import Listener
from app.logs import name_worker
from app.server import Port, Server, build_server
from app.settings import Settings, SettingsError
from app.supervisor.life import Life
from app.supervisor.supervisor import Supervisor, Task
from app.wiring import Wiring

_LONGER_S: Final = 10.0
"""What a stop may take beyond its delay and its two graces, in seconds."""

logger = logging.getLogger(__name__)


def serve_with_workers(settings: Settings, wiring: Wiring, listeners: Sequence[Listener]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. The settings are checked already.

    Raises:
        SettingsError: The system has no fork, or no directory for the workers' sockets, or a port
            has been taken meanwhile.
    """
    if not hasattr(os, "fork"):
        message = "QUOTAS_WORKERS: this system cannot fork, so it has to be 1."
        raise SettingsError(message)
    try:
        team = new_team(settings.workers)
    except OSError as error:
        message = f"QUOTAS_WORKERS: a directory for temporary files is needed: {error}."
        raise SettingsError(message) from None
    try:
        for listener in listeners:
            listener.refuse_unless_free()  # what is bound below, this user may bind again
        ports = [Port(listener, listener.bind()) for listener in listeners]
        server = build_server(settings, wiring, ports, team)
        return _supervised(_Service(settings, wiring, team, server, ports))
    except OSError as error:
        logger.error("this cannot be listened on: %s", error.strerror)  # noqa: TRY400
        return 1
    finally:
        team.disband()


@dataclass(frozen=True, slots=True)
class _Service:
    """What every worker starts from; it is a copy of the parent's, made by the fork."""

    settings: Settings
    wiring: Wiring
    team: Team
    server: Server
    ports: Sequence[Port]

    @property
    def stop_within_s(self) -> float:
        """What a worker's stop may take: two graces, as ``docs/operating.md`` says."""
        return 2 * self.settings.shutdown_grace_s + _LONGER_S

    def work(self, life: Life) -> int:
        """Serve as a worker; return the exit code."""
        name_worker(life.number)
        self.team.join(life.number)
        self.wiring.join(self.team)
        server = self.server
        server.serves = life.serves

        def orphaned() -> None:
            server.parent_has_ended()
            self.team.disband()

        life.watch_parent(orphaned, end_within_s=self.stop_within_s)
        try:
            server.run()
        except SettingsError as error:
            print(error, file=sys.stderr)
            return 2
        return 0 if server.started else 1

    def close(self) -> None:
        """Let go of the ports: the workers have sockets of their own."""
        for port in self.ports:
            for one in port.reserved:
                one.close()


def _supervised(service: _Service) -> int:
    gc.collect()
    gc.freeze()  # so that no worker's collector writes to what it shares with the others
    team = service.team
    stop_within_s = service.settings.stop_delay_s + service.stop_within_s
    task = Task(service.work, team.board.has_ended, service.close, stop_within_s)
    return Supervisor(team.size, task).run()
