"""Lets mkdocstrings read the docstrings of the house."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe
from docs.building.docstrings import rewritten

# Here a class adds the arguments of its bases to its docstring when it is made.
ADDED = "tightbudget.tables.mechanisms."


class Docstrings(griffe.Extension):
    """Rewrites every docstring that griffe finds."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(_whole(obj) or obj.docstring.value)


def _whole(obj: griffe.Object) -> str | None:
    """The docstring of a class as Python has it, where it is more than what stands in the file."""
    if not obj.is_class or not obj.path.startswith(ADDED):
        return None
    kind = getattr(importlib.import_module(obj.module.path), obj.name)
    return inspect.getdoc(kind)
