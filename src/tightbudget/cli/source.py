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
    Bounds,
    Composition,
    Mechanism,
    Neighbouring,
    ParameterError,
    compose,
    read_plan,
)
from tightbudget.cli.commands import PARAMETERS
from tightbudget.cli.completion import relations, sources
from tightbudget.mechanisms import MECHANISMS
from tightbudget.mechanisms.derived import Derived
from tightbudget.notation.options import (
    OPTIONS,
    in_options,
    option_of,
    table_of,
    written,
)
from tightbudget.notation.parameters import kind_of
from tightbudget.notation.values import value_of
from tightbudget.notation.words import in_words
from tightbudget.numerics.validate import count

_NOTHING_PRIVATE = 50.0  # nats: a posterior of 1 - 2e-22 from a prior of one half

_PANEL = "Runs"
_SAMPLING = "How records get into a run (all are in every run without such an option)"
_TIMES = "How many times it runs; with --allocated and --shuffled one run is an epoch."
_SUBJECT = (
    "A mechanism's name, or a plan file. 'tightbudget mechanisms' lists the names; with a name "
    "before it, --help shows its parameters."
)


@dataclass(frozen=True)
class NamedComposition:
    """A mechanism or a plan file named on the command line, with the given parameters.

    Attributes:
        name: the first argument.
        table: the options given by name, without dashes and ``times``.
        times: how often it runs, to be an integer >= 0.
    """

    name: str
    table: dict[str, Any] = field(default_factory=dict)
    times: Any = 1

    def composition(self) -> Composition:
        """Returns the composition that the name and the options describe.

        Raises:
            TightBudgetError: the name or an option is refused.
        """
        kind = kind_of(self.name)
        if kind is not None:
            table = table_of(kind, self.table)
            try:
                mechanism = Mechanism.from_dict(table, where="MECHANISM")
            except ParameterError as error:
                raise ParameterError(in_options(str(error), self.table)) from error
            return compose([mechanism]) * count(times=self.times)
        if not _looks_like_a_file(self.name):
            raise _unknown(self.name)
        if self.table:
            raise ParameterError(
                f"{next(iter(self.table))} must be in the plan file itself, "
                f"got the option beside {self.name}"
            )
        return read_plan(self.name) * count(times=self.times)

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
            for name in (*OPTIONS, "relation"):
                if name in parameters:
                    what[name] = parameters.pop(name)
        given = {name: value for name, value in question.items() if value is not None}
        return {**what, "times": self.times, **given}

    def title(self, composition: Composition) -> str:
        """Writes the title of a picture of a composition."""
        if kind_of(self.name) is not None:
            return in_words(composition)
        runs = f"{len(composition.parts)} mechanisms, {composition.runs:,} runs"
        return f"{Path(self.name).name}: {runs}"

    def with_value(self, name: str, value: float) -> NamedComposition:
        """Returns a copy with another number for an option."""
        if name == "times":
            return replace(self, times=int(value))
        return replace(self, table={**self.table, name: value})


def forgotten_rate(
    composition: Composition, asked: Mapping[str, Any], epsilon: Bounds | None = None
) -> dict[str, str]:
    """Asks in a note whether a sampling rate was forgotten, where it looks like that.

    Training without samples has many steps, or costs an epsilon with which nothing is private. A
    rate that was given, also 1, is taken at its word.

    Args:
        composition: what was asked about.
        asked: what was typed, as :meth:`NamedComposition.asked` returns it.
        epsilon: the answer, where that is an epsilon.
    """
    if asked.get("mechanism") != "gaussian":
        return {"note": composition.doubt} if composition.doubt else {}
    several = composition.runs > 1 and not any(name in asked for name in OPTIONS)
    public = several and epsilon is not None and epsilon.lower > _NOTHING_PRIVATE
    if not composition.doubt and not public:
        return {}
    return {"note": "without --rate every run sees all records; did you forget --rate?"}


def _looks_like_a_file(name: str) -> bool:
    return name.endswith((".toml", ".gz")) or Path(name).parent != Path() or Path(name).exists()


def _unknown(name: str) -> ParameterError:
    close = difflib.get_close_matches(name, MECHANISMS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    known = ", ".join(sorted(MECHANISMS))
    return ParameterError(f"MECHANISM must be a plan file or one of {known}, got {name!r}{hint}")


# ------------------------------------------------------------------ generated options


def generated_options() -> dict[str, str]:
    """Returns the help text of each parameter that has an option because a mechanism has it.

    The parameters that say how records get into a run are not among them: their options are
    :data:`tightbudget.notation.options.OPTIONS`.
    """
    users: dict[str, dict[str, list[str]]] = {}
    for kind, cls in MECHANISMS.items():
        for name, parameter in inspect.signature(cls).parameters.items():
            if name != "relation" and (name == "base" or not issubclass(cls, Derived)):
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
    signature. The argument MECHANISM, the generated options, those of sampling, ``--relation``,
    and ``--times`` stand there in the place of ``source``.

    Args:
        command: answers a question about its ``source``.
        parameters: the help text of each parameter, from :func:`generated_options`.
    """
    own = dict(inspect.signature(command, eval_str=True).parameters)
    del own["source"]
    options = {option_of(name): (name, help) for name, help in parameters.items()}

    def run(mechanism: str, times: str, relation: str | None, **rest: Any) -> None:
        given = {name: rest.pop(name) for name in OPTIONS} | {"relation": relation}
        given |= {name: given[name] or None for name, option in OPTIONS.items() if option.flag}
        given |= {name: rest.pop(option) for option, (name, _) in options.items()}
        # a relation is a word, and never read as a number
        table = {
            k: value_of(v) if k != "relation" else v for k, v in given.items() if v is not None
        }
        command(source=NamedComposition(mechanism, table, value_of(times)), **rest)

    text = str | None
    relation = "What neighbours are: " + ", ".join(r.value for r in Neighbouring) + "."
    signature = [
        _parameter("mechanism", str, typer.Argument(help=_SUBJECT, autocompletion=sources)),
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.values()),
        _parameter("times", str, _option("times", _TIMES, _PANEL, default="1"), "1"),
        _parameter("relation", text, _option("relation", relation, _PANEL, values=relations), None),
        *(
            _parameter(name, bool, _flag(name, option.help, _SAMPLING), False)
            if option.flag
            else _parameter(name, text, _option(name, option.help, _SAMPLING), None)
            for name, option in OPTIONS.items()
        ),
        *(
            _parameter(o, text, _option(o, help, PARAMETERS), None)
            for o, (_, help) in options.items()
        ),
    ]
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, help: str, panel: str, *, values: Any = None, default: str = "") -> Any:
    """Makes an option of a text.

    Args:
        name: the name of the option, without dashes.
        help: what it is.
        panel: the part of the help that it stands in.
        values: completes the text in a shell.
        default: the value that the help names for an option that is not given.
    """
    return typer.Option(
        written(name),
        help=help,
        metavar="VALUE",
        rich_help_panel=panel,
        autocompletion=values,
        show_default=default or False,
    )


def _flag(name: str, help: str, panel: str) -> Any:
    """Makes an option without a value."""
    return typer.Option(written(name), help=help, rich_help_panel=panel)


def _parameter(name: str, of: Any, info: Any, default: Any = inspect.Parameter.empty) -> Any:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[of, info]
    )
