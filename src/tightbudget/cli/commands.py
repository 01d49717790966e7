"""Commands of the terminal: help that fits the window, and the options of a named mechanism."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from rich.markup import escape
from typer.core import TyperCommand

from tightbudget.mechanisms import MECHANISMS
from tightbudget.notation.options import OPTIONS, option_of, written
from tightbudget.notation.parameters import Parameter, kind_of, parameters_of, summary_of

# The panel of help that has the options of mechanisms.
PARAMETERS = "Parameters of mechanisms (as in a plan file; noise and sensitivity in one unit)"

_KIND = "tightbudget.kind"  # the key under which a context knows the mechanism that was named
# Options without a value.
_FLAGS = ("--json", "--help", "-h", *(written(name) for name in OPTIONS if OPTIONS[name].flag))


class Command(TyperCommand):
    """A command whose help is wrapped by the width of the window alone."""

    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        super().__init__(*args, help=_unwrapped(help), **more)


class SourceCommand(Command):
    """A command about a mechanism: its help has the options of the mechanism that is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments, and remembers the mechanism among them for the help."""
        ctx.meta[_KIND] = kind_in(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help without the options that the named mechanism does not have."""
        shown = copy.copy(self)
        kind = ctx.meta.get(_KIND)
        shown.params = list(self._shown(kind))
        if kind is not None:
            first, *more = (self.help or "").split("\n\n")
            shown.help = "\n\n".join([first, escape(f"{kind}: {summary_of(kind)}"), *more])
        TyperCommand.format_help(shown, ctx, formatter)

    def _shown(self, kind: str | None) -> Iterator[Any]:
        """Yields the parameters that the help shows, with the words of the mechanism's docstring.

        Args:
            kind: the mechanism that is named; None if none is.
        """
        options = {}
        for parameter in self.params:
            if getattr(parameter, "rich_help_panel", None) == PARAMETERS:
                options[parameter.name] = parameter
            else:
                yield parameter
        if kind is None:
            return
        for name, described in parameters_of(kind).items():
            if option := options.get(option_of(name)):
                yield _explained(option, described)


def _explained(option: Any, described: Parameter) -> Any:
    """Copies an option with the words that one mechanism has for it."""
    explained = copy.copy(option)
    given = "Needed." if described.needed else f"Default: {described.default}."
    said = f"{described.help[:1].upper()}{described.help[1:]} {given}".strip()
    explained.help = escape(said)  # else [a, b] would be markup
    explained.rich_help_panel = "Parameters of the mechanism"
    return explained


def kind_in(args: Sequence[str]) -> str | None:
    """Finds the mechanism that is named among the arguments of a command; None if none is."""
    for before, arg in zip(["", *args], args, strict=False):
        if not before.startswith("-") or before in _FLAGS or "=" in before:
            kind = kind_of(arg)
            if kind in MECHANISMS:
                return kind
    return None


def _unwrapped(help: str | None) -> str | None:
    """Joins the lines of each paragraph."""
    if help is None:
        return None
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in help.split("\n\n"))
