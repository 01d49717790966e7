"""The subject of a command: a mechanism with its parameters, or a plan file.

The options for parameters are generated from the constructors of the mechanisms, so that a new
mechanism is on the command line without further code. Values are read as in a plan file.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tightbudget import (
    MECHANISMS,
    Composition,
    Mechanism,
    Neighbouring,
    ParameterError,
    compose,
    read_plan,
)
from tightbudget.accounting.describe import in_words, kind_of, value_of
from tightbudget.cli.commands import PARAMETERS
from tightbudget.cli.completion import relations, sources
from tightbudget.explorer.snippets import TAKEN
from tightbudget.numerics.validate import count

__all__ = ["Source", "generated_options", "with_source"]

# Parameters of all mechanisms, which have options of their own.
_COMMON = {"relation", "rate"}
_PANEL = "Runs"
_SUBJECT = (
    "A mechanism's name, or a plan file. 'tightbudget mechanisms' lists the names; with a name "
    "before it, --help shows its parameters."
)


@dataclass(frozen=True)
class Source:
    """A mechanism or a plan file named on the command line, with the given parameters.

    Attributes:
        name: the first argument.
        table: the parameters given, with rate and relation, as in a plan file.
        steps: the number of runs, to be an integer >= 0.
    """

    name: str
    table: dict[str, Any] = field(default_factory=dict)
    steps: Any = 1

    def composition(self) -> Composition:
        """Returns the composition that the name and the options describe.

        Raises:
            TightBudgetError: the name or an option is refused.
        """
        kind = kind_of(self.name)
        if kind is not None:
            mechanism = Mechanism.from_dict({"mechanism": kind, **self.table}, where="MECHANISM")
            return compose([mechanism]) * count(steps=self.steps)
        if not _looks_like_a_file(self.name):
            raise _unknown(self.name)
        if self.table:
            raise ParameterError(
                f"{next(iter(self.table))} must be in the plan file itself, "
                f"got the option beside {self.name}"
            )
        return read_plan(self.name) * count(steps=self.steps)

    def asked(self, **question: Any) -> dict[str, Any]:
        """Returns what was asked as plain JSON values: the mechanism or plan, then the question.

        Args:
            question: the options of the command by name; those that are None are left out.
        """
        kind = kind_of(self.name)
        what: dict[str, Any] = {"plan": self.name}
        if kind is not None:
            parameters = dict(self.table)
            what = {"mechanism": kind, "parameters": parameters}
            for name in ("rate", "relation"):
                if name in parameters:
                    what[name] = parameters.pop(name)
        given = {name: value for name, value in question.items() if value is not None}
        return {**what, "steps": self.steps, **given}

    def title(self, composition: Composition) -> str:
        """Writes the title of a picture of a composition."""
        if kind_of(self.name) is not None:
            return in_words(composition)
        runs = f"{len(composition.parts)} mechanisms, {composition.runs:,} runs"
        return f"{Path(self.name).name}: {runs}"

    def with_value(self, name: str, value: float) -> Source:
        """Returns a copy with another number for a parameter, for rate or for steps."""
        if name == "steps":
            return replace(self, steps=int(value))
        return replace(self, table={**self.table, name: value})


def _looks_like_a_file(name: str) -> bool:
    return name.endswith((".toml", ".gz")) or Path(name).parent != Path() or Path(name).exists()


def _unknown(name: str) -> ParameterError:
    close = difflib.get_close_matches(name, MECHANISMS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    known = ", ".join(sorted(MECHANISMS))
    return ParameterError(f"MECHANISM must be a plan file or one of {known}, got {name!r}{hint}")


# ------------------------------------------------------------------ generated options


def generated_options() -> dict[str, str]:
    """Returns the help text of each parameter that some mechanism has."""
    users: dict[str, dict[str, list[str]]] = {}
    for kind, cls in MECHANISMS.items():
        for name, parameter in inspect.signature(cls).parameters.items():
            if name not in _COMMON:
                needed = parameter.default is inspect.Parameter.empty
                default = "needed" if needed else f"default {parameter.default!r}"
                users.setdefault(name, {}).setdefault(default, []).append(kind)
    return {
        name: "; ".join(f"{', '.join(kinds)} ({default})" for default, kinds in groups.items())
        for name, groups in users.items()
    }


def with_source(command: Callable[..., None], parameters: Mapping[str, str]) -> Callable[..., None]:
    """Gives a command the options that describe a mechanism or a plan file.

    typer reads options from a signature. The result is ``command(source, ...)`` with another
    signature, in which the argument MECHANISM, the generated options, ``--rate``, ``--relation``
    and ``--steps`` stand in the place of ``source``.

    Args:
        command: answers a question about its ``source``.
        parameters: the help text of each parameter, from :func:`generated_options`.
    """
    own = dict(inspect.signature(command, eval_str=True).parameters)
    del own["source"]
    options = {
        f"step_{name}" if name in TAKEN else name: (name, help) for name, help in parameters.items()
    }

    def run(
        mechanism: str, steps: str, rate: str | None, relation: str | None, **rest: Any
    ) -> None:
        given = {"rate": rate, "relation": relation}
        given |= {name: rest.pop(option) for option, (name, _) in options.items()}
        # a relation is a word, and never read as a number
        table = {
            k: value_of(v) if k != "relation" else v for k, v in given.items() if v is not None
        }
        command(source=Source(mechanism, table, value_of(steps)), **rest)

    text = str | None
    rate = "Poisson subsampling: each record is in a run with this probability."
    relation = "What neighbours are: " + ", ".join(r.value for r in Neighbouring) + "."
    signature = [
        _parameter("mechanism", str, typer.Argument(help=_SUBJECT, autocompletion=sources)),
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.values()),
        _parameter("steps", str, _option("steps", "How many times it runs.", _PANEL), "1"),
        _parameter("rate", text, _option("rate", rate, _PANEL), None),
        _parameter("relation", text, _option("relation", relation, _PANEL, relations), None),
        *(
            _parameter(o, text, _option(o, help, PARAMETERS), None)
            for o, (_, help) in options.items()
        ),
    ]
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, help: str, panel: str, values: Any = None) -> Any:
    """Makes an option of a text; ``values`` completes it in a shell."""
    flag = "--" + name.replace("_", "-")
    return typer.Option(
        flag, help=help, metavar="VALUE", rich_help_panel=panel, autocompletion=values
    )


def _parameter(name: str, of: Any, info: Any, default: Any = inspect.Parameter.empty) -> Any:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[of, info]
    )
