"""Pages of the site that are made of files outside ``docs``, and what built pages load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from tightbudget import links

ROOT = Path(__file__).resolve().parents[2]
# pages of the site, and the files in the repository's root that they are made of
FROM_THE_ROOT = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
# the sign of the package, which a server's pages show, too
MARK = ROOT / "src" / "tightbudget" / "web" / "static" / "mark.svg"
_TARGET = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)(?=[)#])")
_ELSEWHERE = re.compile(r"(https?:)?//")


def from_the_root(name: str) -> str:
    """The text of a file in the repository's root, with the links of a page of the site."""
    return _TARGET.sub(_turned, (ROOT / name).read_text(encoding="utf-8"))


def _turned(link: re.Match[str]) -> str:
    """The target of a link in the repository's root, as a page in ``docs`` names it."""
    target = link[1]
    pages = {name: page for page, name in FROM_THE_ROOT.items()}
    if target in pages:
        return pages[target]
    if target.startswith("docs/") and target.endswith((".md", ".png")):
        return target.removeprefix("docs/")
    return f"{links.REPOSITORY}/blob/main/{target}"


def loaded_from_elsewhere(html: str) -> Iterator[str]:
    """The addresses of other hosts from which a page loads scripts, styles, fonts or pictures."""
    reader = _Loads()
    reader.feed(html)
    yield from reader.found


class _Loads(HTMLParser):
    """Collects what a page loads from other hosts; a link that a reader follows loads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects the addresses that one tag loads from."""
        of = {name: value or "" for name, value in attrs}
        if tag == "a" or (tag == "link" and of.get("rel") in {"canonical", "prev", "next"}):
            return
        loads = [of.get(name, "") for name in ("src", "srcset", "href", "data")]
        self.found += [address for address in loads if _ELSEWHERE.match(address)]
