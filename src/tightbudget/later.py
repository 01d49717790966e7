"""Names that are looked up when they are used: they need an optional package, or are a guess."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_BESIDE = {"TYPE_CHECKING", "Later", "face", "installed"}  # how a room is made, not what it has


class Later(NamedTuple):
    """A module that defines a name, and the package that must be installed for it.

    ``first`` names a module to import before, which refuses in words where the package is missing;
    without it, ``module`` does so itself.
    """

    module: str
    needs: str
    first: str = "tightbudget"


def installed(names: list[str], later: Mapping[str, Later]) -> list[str]:
    """Returns the names that can be loaded here, for the ``__all__`` of a room.

    ``from room import *`` asks for every name, so it is told of those that are there. A name that
    is left out is still refused with its extra's name where somebody asks for it.

    Args:
        names: all names of the room.
        later: the names that load when they are first used.
    """
    there = {needs: importlib.util.find_spec(needs) is not None for _, needs, _ in later.values()}
    return [name for name in names if name not in later or there[later[name].needs]]


def face(
    namespace: dict[str, Any],
    later: Mapping[str, Later],
    *,
    hint: Callable[[str], str] = lambda _: "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the ``__getattr__`` and the ``__dir__`` of a room that loads some names later.

    Args:
        namespace: ``globals()`` of the room.
        later: the names that load when they are first used.
        hint: from a name that the room does not have to words that help, or "".
    """
    room = namespace["__name__"]

    def attribute(name: str) -> Any:
        if name in later:
            importlib.import_module(later[name].first)
            return getattr(importlib.import_module(later[name].module), name)
        words = hint(name)
        raise AttributeError(words or f"module {room!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]} - _BESIDE)

    return attribute, names


def guesses(**words: str) -> Callable[[type[T]], type[T]]:
    """Decorates a class: a name that it does not have, and people guess, is refused with a hint.

    The refusal is an AttributeError, so that ``hasattr`` stays False, and ``dir`` lists no guess.

    Args:
        words: for each guess what the refusal says after the class and the name.
    """

    def attribute(self: object, name: str) -> Any:
        if name in words:
            raise AttributeError(f"{type(self).__name__}.{name} {words[name]}", name=name, obj=self)
        # asked once more, for the error of Python, or the one that a property has raised
        return object.__getattribute__(self, name)

    def decorate(kind: type[T]) -> type[T]:
        # set, and not written in the class: a type checker would take every name for one of it
        setattr(kind, "__getattr__", attribute)  # noqa: B010
        return kind

    return decorate
