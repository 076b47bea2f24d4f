"""A picture of the first screen of a report, taken by whatever Chromium the system has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Names under which distributions and vendors install the browser; the first has no windows and is the quickest.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Quiet, no sandbox (a container's root has none), and no request of the browser's own.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: The window that a picture shows, in pixels.
WIDTH, HEIGHT = 1280, 800


class NoBrowser(Exception):
    """Playwright or the browser is not installed; the text says which and how to get it."""


@contextmanager
def browser() -> Iterator[Any]:
    """Yield a running browser of Playwright's; raises ``NoBrowser``."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NoBrowser("needs Playwright: pip install '.[browser]'") from error
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise NoBrowser(f"needs one of {', '.join(NAMES)}: apt-get install chromium-headless-shell")
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


def photograph(running: Any, report: Path, picture: Path) -> None:
    """Write a PNG of what the report shows before anybody scrolls, in the light theme."""
    page = running.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", offline=True)
    page.goto(report.resolve().as_uri())
    page.screenshot(path=str(picture))
    page.close()
