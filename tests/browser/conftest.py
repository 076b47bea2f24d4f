"""One headless Chromium for each test worker, and the reports that it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.render import render
from reports.examples import photograph

from .incidents import INCIDENTS, Doc, document, grouped


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return the system's Chromium, driven by Playwright."""
    try:
        with photograph.browser() as running:
            yield running
    except photograph.NoBrowser as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Doc]]:
    """Return what gives the file and the document of an incident's report; each is made once per worker."""

    @cache
    def made(name: str) -> tuple[Path, Doc]:
        folder = tmp_path_factory.mktemp(name)
        doc = document(name, folder)
        report = folder / "report.html"
        report.write_bytes(render(doc, "html", lang="en"))
        return report, doc

    return made


@pytest.fixture(params=grouped(*INCIDENTS))
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of an incident."""
    return str(request.param)


@pytest.fixture
def report(name: str, reports: Callable[[str], tuple[Path, Doc]]) -> Path:
    """Return the incident's report."""
    return reports(name)[0]


@pytest.fixture
def doc(name: str, reports: Callable[[str], tuple[Path, Doc]]) -> Doc:
    """Return the incident's document."""
    return reports(name)[1]


@pytest.fixture(scope="session")
def tabs(browser: Any) -> Iterator[dict[bool, Any]]:
    """Return one page without scripts and one with: opening a file in them is cheaper than opening them."""
    contexts = [browser.new_context(java_script_enabled=scripts, offline=True) for scripts in (False, True)]
    for context in contexts:
        context.set_default_timeout(4000)
    yield {scripts: context.new_page() for scripts, context in zip((False, True), contexts, strict=True)}
    for context in contexts:
        context.close()


@pytest.fixture
def show(tabs: dict[bool, Any]) -> Callable[..., Any]:
    """Return what opens a file, offline, without scripts unless ``scripts`` is given, in a window of that size."""

    def opened(
        path: Path,
        *,
        width: int = 1280,
        height: int = 800,
        scripts: bool = False,
        media: str = "screen",
        scheme: str = "light",
    ) -> Any:
        page = tabs[scripts]
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media=media, color_scheme=scheme, reduced_motion="reduce")
        page.goto(path.as_uri())
        return page

    return opened
