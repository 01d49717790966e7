"""Options come from the mechanisms themselves: nothing here names them one by one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from tests.cases import CASES
from tests.cli.terminal import answer, run

import tightbudget as tb
from tightbudget.accounting.plan_file import toml_value
from tightbudget.cli import app
from tightbudget.cli.commands import PARAMETERS
from tightbudget.cli.source import NamedComposition, generated_options
from tightbudget.notation.options import OPTIONS, options_of, options_of_kind
from tightbudget.notation.parameters import kind_of
from tightbudget.notation.values import value_of

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
ASKING = ["epsilon", "delta", "curve", "risk", "compare", "calibrate", "stopping"]
TAKEN = {"epsilon", "epsilons", "delta", "deltas", "weights"}


GENERATED = {
    flag for p in COMMANDS["epsilon"].params for flag in p.opts if p.rich_help_panel == PARAMETERS
}


def test_every_parameter_of_every_mechanism_has_an_option() -> None:
    names = {
        option
        for kind in tb.mechanisms.MECHANISMS
        for option in options_of_kind(kind)
        if option not in OPTIONS
    }
    assert set(generated_options()) == names
    assert GENERATED
    for command in ASKING:
        flags = [flag for p in COMMANDS[command].params for flag in p.opts]
        # one parameter has one name in all commands
        assert {flag for flag in flags if flag in GENERATED} == GENERATED
        assert len(flags) == len(set(flags))
        for name in names | OPTIONS.keys():
            prefix = "step-" if name in TAKEN else ""
            assert f"--{prefix}{name.replace('_', '-')}" in flags


def test_help_says_which_mechanism_needs_an_option() -> None:
    options = generated_options()
    assert "gaussian" in options["sigma"]
    assert options["sigma"].endswith("(needed)")
    assert "laplace" in options["sensitivity"].split("(default 1.0)")[0]
    assert "discrete_laplace (default 1)" in options["sensitivity"]


@pytest.mark.parametrize("kind", tb.mechanisms.MECHANISMS)
def test_names_are_written_with_either_line(kind: str) -> None:
    for name in (kind, kind.replace("_", "-"), kind.replace("-", "_"), kind.upper()):
        assert kind_of(name) == kind


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "case",
    # one case of each kind, and of each set of parameters
    list({(c.mechanism.kind, *c.mechanism.parameters()): c for c in reversed(CASES)}.values()),
    ids=lambda case: case.name,
)
def test_every_mechanism_can_be_asked_about(case) -> None:
    table = case.mechanism.to_dict()
    args = [table["mechanism"].replace("_", "-")]
    for name, value in options_of(table).items():
        prefix = "step-" if name in TAKEN else ""
        text = [value] if isinstance(value, str) else [toml_value(value)]
        args += [
            f"--{prefix}{name.replace('_', '-')}",
            *(text if name not in OPTIONS or not OPTIONS[name].flag else []),
        ]
    bounds = tb.compose([case.mechanism]).delta(0.1, rtol=1e-2)
    assert answer("delta", *args, "--epsilon", 0.1, "--rtol", 1e-2)["delta"] == bounds.to_dict()


def test_a_new_mechanism_is_on_the_command_line_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "width" not in generated_options()
    # a class registers itself; the place is taken beforehand, so that it is given back in the end
    monkeypatch.setitem(tb.mechanisms.MECHANISMS, "cauchy", tb.Gaussian)

    @dataclass(frozen=True)
    class Cauchy(tb.Mechanism):
        width: float
        kind: ClassVar[str] = "cauchy"

    assert generated_options()["width"] == "cauchy (needed)"
    assert NamedComposition("cauchy", {"width": 2.0}).composition() == Cauchy(2.0) * 1


# what Python's int and float would read: underscores, blanks, and the digits of other scripts
NO_NUMBERS = [
    *("1_0", "1_0.5", "1e1_0", " 1", "1 ", "\t1", "1\n", "\u00a01", "0x10", "0b1", "0o7"),
    *("\u0661", "\uff11", "\u0967.5", "1e\u0665", "1\u0660", "\u2212" + "1"),
]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e-5", 1e-5),
        (".5", 0.5),
        ("1e3", 1000),
        ("-2.5E1", -25),
        ("1.0", 1.0),
        ("2.5e-1", 0.25),
        ("1e16", 1e16),
        ("256/60000", 256 / 60000),
        ("1/" + "9" * 300, 1e-300),
        ("9" * 300 + "0" * 300, int("9" * 300 + "0" * 300)),
        ("1/0", "1/0"),
        ("-1/2", "-1/2"),
        ("1 / 2", "1 / 2"),
        ("1/2/3", "1/2/3"),
        ("0.5/2", "0.5/2"),
        ("\u0661/2", "\u0661/2"),
        ("1%", "1%"),
        ("-2", -2),
        ("true", True),
        ("[1, 2.5]", [1, 2.5]),
        ("{ scale = 3 }", {"scale": 3}),
        ("uniform:200", "uniform:200"),
        ("'quoted'", "quoted"),
        ("1\nother = 2", "1\nother = 2"),
        ("[" * 100_000, "[" * 100_000),
        *((text, text) for text in NO_NUMBERS),
        (0.25, 0.25),
    ],
)
def test_values_are_read_as_in_a_plan_file(text: object, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize("command", [*ASKING, "histogram"])
def test_every_command_explains_itself(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"tightbudget {command}" in result.stdout
    assert "For example:" in result.stdout


def test_the_bare_command_shows_help_and_the_version_is_the_package_s() -> None:
    bare = run()
    assert bare.exit_code == 0
    for command in COMMANDS:
        assert command in bare.stdout
    assert run("--version").stdout == f"tightbudget {tb.__version__}\n"
