"""A real browser without a screen: Debian's Chromium, driven by Playwright.

Where it is missing, it is installed if that can be done without asking; else the tests that need
it are skipped and say why, and fail where ``CI`` is set.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

__all__ = ["ARTEFACTS", "DARK", "DESK", "PHONE", "Looks", "Watched", "launched", "watched"]

ARTEFACTS = Path(__file__).resolve().parents[2] / "test-artefacts"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_APT = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]  # another worker may be at it
_INSTALL = (["update"], ["install", "--yes", "--no-install-recommends", "chromium"])


@dataclass(frozen=True)
class Looks:
    """A screen and its user's wishes, in Playwright's words."""

    name: str
    context: dict[str, Any]


DESK = Looks("desk", {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"})
DARK = Looks("dark", {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"})
PHONE = Looks(
    "phone",
    {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
        "color_scheme": "light",
    },
)


@functools.cache
def _chromium() -> str | None:
    """Returns the path of the browser, which is installed first if that can be done."""
    for again in (True, False):
        for name in _NAMES:
            if found := shutil.which(name):
                return found
        if again and os.geteuid() == 0 and shutil.which("apt-get"):
            for step in _INSTALL:
                subprocess.run([*_APT, *step], check=False, capture_output=True, timeout=500)
    return None


@contextmanager
def launched() -> Iterator[Browser]:
    """The browser; a skip that says so where there is none, and a failure in CI."""
    path = _chromium()
    if path is None:
        missing = "no browser: apt-get install chromium, or run the tests as root once"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        # as root there is no sandbox; it sees pages of this test alone
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and what went wrong on it.

    Attributes:
        page: Playwright's.
        looks: how it is looked at.
        faults: errors on the console (also of the content policy), uncaught ones in scripts,
            and requests to other hosts; :func:`watched` expects none in the end.
    """

    page: Page
    looks: Looks
    faults: list[str] = field(default_factory=list)

    def shoot(self, name: str) -> Path:
        """A picture of the whole page, kept in ``test-artefacts``."""
        ARTEFACTS.mkdir(exist_ok=True)
        path = ARTEFACTS / f"{name}-{self.looks.name}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def serious_findings(self) -> list[str]:
        """Lists what axe finds wrong with the page, if it is serious or worse, with each place."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{rule['id']}: {rule['help']} ({', '.join(str(n['target']) for n in rule['nodes'])})"
            for rule in found
            if rule["impact"] in ("serious", "critical")
        ]


@contextmanager
def watched(browser: Browser, url: str, looks: Looks = DESK, **more: Any) -> Iterator[Watched]:
    """A page in a session of its own, where nothing may go wrong unnoticed."""
    host = urlsplit(url).netloc
    context = browser.new_context(base_url=url, **looks.context, **more)
    context.set_default_timeout(20_000)
    page = context.new_page()
    seen = Watched(page, looks)

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            seen.faults.append(f"{message.type}: {message.text}")

    def on_request(request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme in ("http", "https") and where.netloc != host:
            seen.faults.append(f"a request to {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: seen.faults.append(f"uncaught: {error}"))
    page.on("request", on_request)
    try:
        yield seen
    finally:
        context.close()
    assert not seen.faults, "; ".join(seen.faults)
