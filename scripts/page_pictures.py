"""Take the pictures of the page that the README and docs/page.md show, of a service that runs.

`python scripts/page_pictures.py http://localhost:8080 .local/tokens/alice` after `make run`.
"""

import argparse
import json
import os
from pathlib import Path

from npm_packages import ROOT, browser
from playwright.sync_api import Page, sync_playwright

FOLDER = ROOT / "docs" / "pictures"
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 800}


def quotas(page: Page) -> None:
    """Show every quota."""
    page.goto("/ui/quotas")
    page.get_by_role("link", name="Edit").first.wait_for()


def resolve(page: Page) -> None:
    """Show the ladders of one connection."""
    page.goto("/ui/resolve?user=alice&client-id=etl")
    page.get_by_role("table", name="producer_byte_rate").wait_for()


def edit(page: Page) -> None:
    """Show a change that was checked."""
    page.goto("/ui/quotas?search=user%3Dalice")
    page.get_by_role("link", name="Edit user alice", exact=True).click()
    page.get_by_label("producer_byte_rate", exact=True).fill("12 MiB/s")
    page.get_by_label("Reason", exact=True).fill("INC-4711 raise for backfill")
    page.get_by_role("button", name="Check").click()
    page.get_by_role("table", name="After").wait_for()


def usage(page: Page) -> None:
    """Show who is near a limit."""
    page.goto("/ui/usage")
    page.get_by_role("img", name="Use by hour").wait_for()


PICTURES = (
    (quotas, WIDE, "light"),
    (resolve, WIDE, "light"),
    (edit, NARROW, "light"),
    (usage, WIDE, "dark"),
)


def main() -> None:
    """Write `page-<screen>.png` for each screen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="of the service")
    parser.add_argument("token", type=Path, help="a file with a token that may alter")
    arguments = parser.parse_args()
    found = browser()
    # The fonts of this machine, not only the one that the tests have.
    environ = {name: path for name, path in found.environ.items() if name != "FONTCONFIG_PATH"}
    token = json.dumps(arguments.token.read_text().strip())
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(
            executable_path=found.program, args=["--no-sandbox"], env={**os.environ, **environ}
        )
        for show, size, scheme in PICTURES:
            context = chrome.new_context(base_url=arguments.url, viewport=size, color_scheme=scheme)
            context.add_init_script(f"sessionStorage.setItem('token', {token})")
            page = context.new_page()
            show(page)
            page.wait_for_load_state("networkidle")
            is_long = size is NARROW
            page.screenshot(path=FOLDER / f"page-{show.__name__}.png", full_page=is_long)
            context.close()
        chrome.close()


if __name__ == "__main__":
    main()
