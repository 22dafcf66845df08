"""The Chromium that `make install` keeps, for tests of what only a browser shows."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from scripts.npm_packages import browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run one; end it with the module that uses it: its event loop disturbs others."""
    found = browser()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=found.program,
            args=["--no-sandbox", "--disable-gpu"],
            env={**os.environ, **found.environ},
        )
        yield running
        running.close()
