"""Steps that MkDocs takes for this site: addresses, pages from outside ``docs``, generated parts.

MkDocs calls the functions by their names; see its documentation of hooks. ``make docs`` runs
``python -m mkdocs`` in the root of the checkout, so that ``papers`` and ``tests`` are found.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from docs.building import pages, parts
from docs.notebooks import pages as notebooks
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from tightbudget import links


def on_config(config: MkDocsConfig) -> None:
    """Sets the addresses of the site and of the repository."""
    config.site_url = links.DOCUMENTATION
    source = {"icon": "fontawesome/brands/git-alt", "link": links.REPOSITORY, "name": "Source"}
    config.extra["social"] = [source]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds pages that are made of files outside the folder of pages, the mark, and notebooks."""
    for page, name in pages.FROM_THE_ROOT.items():
        files.append(File.generated(config, page, content=pages.from_the_root(name)))
    files.append(File.generated(config, "images/mark.svg", content=pages.MARK.read_bytes()))
    with ThreadPoolExecutor(os.cpu_count()) as workers:  # a notebook runs in a process of its own
        for notebook in workers.map(_executed, notebooks.sources()):
            for name, content in notebook.items():
                files.append(File.generated(config, f"notebooks/{name}", content=content))


def _executed(source: Path) -> dict[str, bytes]:
    """The page of a notebook and what lies beside it, by their names."""
    return _files_of(source, source.read_text(encoding="utf-8"))


@functools.cache
def _files_of(source: Path, text: str) -> dict[str, bytes]:
    """Executes a notebook once for each text that it has, while the site is served."""
    page = notebooks.executed(source)
    return {f"{page.name}.md": page.markdown.encode(), **page.files}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the generated parts of a page in their places."""
    return parts.whole(markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Gives the theme's search dialog a name, which screen readers say."""
    return output.replace(' role="dialog"', ' role="dialog" aria-label="Search"')


def on_post_build(config: MkDocsConfig) -> None:
    """Refuses a site that would load anything from another host.

    Raises:
        PluginError: names each page and the address that it would load from.
    """
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*.html"))
        for address in pages.loaded_from_elsewhere(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("pages load from another host:\n" + "\n".join(found))
