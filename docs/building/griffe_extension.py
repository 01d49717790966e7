"""Lets mkdocstrings read the docstrings of the house."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe
from docs.building.docstrings import rewritten

# Here a class adds the arguments of its bases to its docstring when it is made.
ADDED = "tightbudget.tables.mechanisms."
# Here a method without a docstring has that of a base, as Python's help() shows it.
INHERITED = ("tightbudget.ledger.", "tightbudget.client.")


class Docstrings(griffe.Extension):
    """Rewrites every docstring that griffe finds, and adds those that a method inherits."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(_whole(obj) or obj.docstring.value)
        elif inherited := _inherited(obj):
            obj.docstring = griffe.Docstring(
                rewritten(inherited),
                parent=obj,
                parser=griffe.Parser.google,
            )


def _whole(obj: griffe.Object) -> str | None:
    """The docstring of a class as Python has it, where it is more than what stands in the file."""
    if not obj.is_class or not obj.path.startswith(ADDED):
        return None
    kind = getattr(importlib.import_module(obj.module.path), obj.name)
    return inspect.getdoc(kind)


def _inherited(obj: griffe.Object) -> str | None:
    """The docstring that a public method or property has from a base; None where it has none."""
    kind = obj.parent
    is_method = obj.is_function or "property" in obj.labels
    if kind is None or not kind.is_class or not is_method or not obj.path.startswith(INHERITED):
        return None
    if obj.name.startswith("_"):
        return None
    made = getattr(importlib.import_module(obj.module.path), kind.name)
    return inspect.getdoc(getattr(made, obj.name))
