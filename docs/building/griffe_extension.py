"""Lets mkdocstrings read the docstrings of the house."""

from __future__ import annotations

from typing import Any

import griffe
from docs.building.docstrings import rewritten


class Docstrings(griffe.Extension):
    """Rewrites every docstring that griffe finds."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)
