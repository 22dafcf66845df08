"""``serve``: this process serves, or it is the parent of the workers that do.

Each worker is a replica like one on another machine.
"""

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from app.http.application import create_application
from app.http.metrics import SharedCounts, forget_worker
from app.logs import configure_logs, name_worker
from app.server import Listener, build_server, read_listeners, report_listening
from app.settings import Settings, SettingsError
from app.startup_checks import check_dependencies, warn
from app.wiring import Wiring

logger = structlog.get_logger(__name__)

_FOLDERS: Final = (None, "/dev/shm")  # noqa: S108 - mkdtemp makes a private one in there
_LONGER_S: Final = 10.0
"""What a stop may take beyond its delay and its two graces, in seconds."""

_PAUSE_S: Final = 1.0
"""Before another try of a worker that could not start while others serve, in seconds."""


def serve_with_workers(settings: Settings, listeners: Sequence[Listener]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. The settings are checked already.

    Raises:
        SettingsError: There is no folder for what the workers count, or a port has been taken.
    """
    folder = _new_folder()
    try:
        for listener in listeners:
            listener.refuse_unless_free()  # what is bound below, this user may bind again
        bound = [replace(listener, reserved=list(listener.bind())) for listener in listeners]
        workers = Workers(settings, bound, folder)
        workers.run()
    except OSError as error:
        logger.error("this cannot be listened on: %s", error.strerror)  # noqa: TRY400
        return 1
    else:
        return workers.exit_code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    failure: OSError | None = None
    for parent in _FOLDERS:
        try:
            return Path(tempfile.mkdtemp(prefix="quotas-", dir=parent))
        except OSError as error:
            failure = error
    message = f"QUOTAS_WORKERS: a folder for temporary files is needed: {failure}."
    raise SettingsError(message)


class Worker(Process):
    """One worker.

    Attributes:
        serves: Whether it has reported that it listens.
    """

    def __init__(
        self, number: int, settings: Settings, listeners: Sequence[Listener], folder: Path
    ) -> None:
        self.number = number
        self.serves = False
        self._settings = settings
        self._folder = folder
        self._sizes = [len(listener.reserved) for listener in listeners]
        config = Config(__name__, log_config=None)
        super().__init__(config, [sock for listener in listeners for sock in listener.reserved])

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, in the process of the worker."""
        settings = self._settings
        configure_logs(settings.log_format, settings.log_level)
        name_worker(self.number)
        reserved = iter(sockets or [])
        try:
            listeners = [
                replace(listener, reserved=[next(reserved) for _ in range(size)])
                for listener, size in zip(read_listeners(settings), self._sizes, strict=True)
            ]
            wiring = Wiring(settings, SharedCounts(self._folder, self.number))
        except SettingsError as error:
            print(error, file=sys.stderr)
            sys.exit(STARTUP_FAILURE)
        server = build_server(settings, wiring, listeners)
        server.report = lambda _: self.child_conn.send(True)

        def stop_with_parent() -> None:
            parent = multiprocessing.parent_process()
            if parent is not None:
                parent.join()
                shutil.rmtree(self._folder, ignore_errors=True)
                server.parent_has_ended()

        threading.Thread(target=stop_with_parent, daemon=True).start()
        server.run()
        sys.exit(0 if server.started else STARTUP_FAILURE)

    def listen_for_report(self) -> None:
        """Take the report of a worker that listens."""
        if not self.serves and self.process.is_alive() and self.parent_conn.poll():
            self.serves = bool(self.parent_conn.recv())
            logger.info("worker %d serves: process %d", self.number, self.pid)


class Workers(Multiprocess):
    """The parent of the workers: uvicorn's, which also reports when they listen.

    Attributes:
        exit_code: 0 unless the service ended because a worker could not start, or not stop.
    """

    processes: list[Worker]  # type: ignore[assignment]

    def __init__(self, settings: Settings, listeners: Sequence[Listener], folder: Path) -> None:
        sockets = [sock for listener in listeners for sock in listener.reserved]
        super().__init__(Config(__name__, log_config=None, workers=settings.workers), sockets)
        self.exit_code = 0
        self._settings = settings
        self._listeners = listeners
        self._folder = folder
        self._reported = False

    def init_processes(self) -> None:
        """Start all of them."""
        self.processes = [self._start(number + 1) for number in range(self.processes_num)]

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended, and report that the service listens."""
        for worker in self.processes:
            worker.listen_for_report()
        if not self._reported and any(worker.serves for worker in self.processes):
            self._reported = True
            for listener in self._listeners:
                report_listening([(listener, sock) for sock in listener.reserved])
        for worker in self.processes:
            if not self.should_exit.is_set() and not worker.process.is_alive():
                self._replace(worker)

    def _replace(self, ended: Worker) -> None:
        """Start another worker, or end the service where none could start."""
        ended.process.join()
        code = ended.exitcode or 0
        forget_worker(self._folder, ended.number)
        reason = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        sentence = f"worker {ended.number} (process {ended.pid}) ended {reason}"
        if not ended.serves and not any(worker.serves for worker in self.processes):
            logger.error("%s and could not start; so the service ends", sentence)
            self.exit_code = code if code > 0 else 128 - code
            self.should_exit.set()
            return
        logger.warning("%s; the next one starts now", sentence)
        if not ended.serves:
            self.should_exit.wait(_PAUSE_S)
        self.processes[ended.number - 1] = self._start(ended.number)

    def _start(self, number: int) -> Worker:
        worker = Worker(number, self._settings, self._listeners, self._folder)
        worker.start()
        return worker

    def join_all(self) -> None:
        """Wait for the end of all; kill what does not stop in time."""
        settings = self._settings
        grace_s = settings.stop_delay_s + 2 * settings.shutdown_grace_s + _LONGER_S
        deadline = time.monotonic() + grace_s
        for worker in self.processes:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.exitcode is None:
                logger.error("worker %d did not stop in time and is killed", worker.number)
                worker.process.kill()
                worker.process.join()
            has_begun = worker.serves or worker.exitcode != -signal.SIGTERM
            if worker.exitcode and has_begun and not self.exit_code:
                self.exit_code = 1

    def handle_hup(self) -> None:
        """Have every worker read the policy again; uvicorn itself would restart them."""
        for worker in self.processes:
            if worker.serves and worker.process.is_alive():
                os.kill(worker.process.pid or 0, signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Ignore it: the settings say how many workers there are."""

    def handle_ttou(self) -> None:
        """Ignore it: the settings say how many workers there are."""


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises:
        SettingsError: Postgres or the brokers are not those that the settings ask for.
    """
    configure_logs(settings.log_format, settings.log_level)
    warn(settings)
    listeners = read_listeners(settings)
    logger.info("starting", brokers=settings.kafka_bootstrap_servers)
    asyncio.run(check_dependencies(settings))
    if settings.workers > 1:
        return serve_with_workers(settings, listeners)
    server = build_server(settings, Wiring(settings), listeners)
    server.run()
    return 0 if server.started else 1


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document; needs no settings and connects to nothing."""
    return create_application(_never_opened).openapi()


def _never_opened() -> NoReturn:
    message = "this application only describes itself"
    raise RuntimeError(message)
