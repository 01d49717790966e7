"""``tightbudget reproduce``: papers' tables and figures anew, held against what is committed."""

from __future__ import annotations

import importlib
import json as json_format
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import tightbudget
from tightbudget import Bounds, ExtraError, FileError
from tightbudget.accounting.text_file import read_text, write_text
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import Stopwatch, print_json, print_rows, tracked
from tightbudget.numerics.validate import one_of

__all__ = ["differences", "reproduce"]

# src/tightbudget is two folders below the root of a checkout
_PAPERS = Path(tightbudget.__file__).resolve().parents[2] / "papers"
_DIFFERS = 1
_GAP = 1e-3  # certified ends may be this far apart, relative, or as far as what is committed


@dataclass(frozen=True)
class _Result:
    """One table or figure: how many numbers it has, which of them are not as committed."""

    numbers: int
    different: list[str]
    table: str | None

    def in_words(self) -> str:
        """For people."""
        head = f"{self.numbers} numbers, as expected"
        if self.different:
            head = "\n".join([f"{self.numbers} numbers, of which these differ:", *self.different])
        return head + (f"\n{self.table}" if self.table else "")


def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(help="Folders in papers/.", show_default="all", metavar="[PAPER]..."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A table or figure, such as table_1; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where pictures and numbers go.")] = Path("out"),
    json: AsJson = False,
) -> None:
    """The tables and figures of papers, computed anew and compared with the numbers committed.

    Needs a checkout of the project, in which they lie, and the extra plot. Exit code 1 says that
    something differs.

    For example: tightbudget reproduce hartmann_2022 --only table_1 --only figure_filter
    """
    watch = Stopwatch()
    results = {}
    for script in tracked(_scripts(papers, only), "reproducing"):
        paper = script.parent.name
        results[f"{paper}/{script.stem}"] = _run(script, out / paper)
    differs = any(result.different for result in results.values())
    if json:
        answer = {
            name: {"numbers": result.numbers, "different": result.different}
            for name, result in results.items()
        }
        print_json({"results": answer, "wrote": str(out), "seconds": watch.seconds})
    else:
        rows = {name: result.in_words() for name, result in results.items()}
        print_rows(rows | {"wrote": str(out), "seconds": f"{watch.seconds:.2f}"})
    if differs:
        raise typer.Exit(_DIFFERS)


# ------------------------------------------------------------------------------ scripts


def _scripts(papers: list[str] | None, only: list[str] | None) -> list[Path]:
    """The tables and figures asked for.

    Raises:
        FileError: there is no folder of papers.
        ParameterError: no such paper, table or figure.
    """
    if not _PAPERS.is_dir():
        raise FileError(
            f"{_PAPERS}: no such folder; tables and figures of papers are in a checkout of the "
            "project, not in the installed package"
        )
    found = sorted(s for kind in ("figure", "table") for s in _PAPERS.glob(f"*/{kind}_*.py"))
    keys = tuple(dict.fromkeys(script.parent.name for script in found))
    asked = {one_of(keys, paper=paper) for paper in papers or keys}
    found = [script for script in found if script.parent.name in asked]
    names = tuple(dict.fromkeys(script.stem for script in found))
    wanted = {one_of(names, only=name) for name in only or names}
    return [script for script in found if script.stem in wanted]


def _run(script: Path, out: Path) -> _Result:
    """Computes, writes, compares: ``numbers()``, then ``draw(numbers, path)`` or ``table``.

    A script that searches for prices and then asks what they take says in MOVES by how much,
    relative, another search may move its numbers.
    """
    module = _module(script)
    numbers = module.numbers()
    write_text(_made(out) / f"{script.stem}.json", _as_json(numbers))
    if hasattr(module, "draw"):
        module.draw(numbers, out / f"{script.stem}.png")
    table = module.table(numbers) if hasattr(module, "table") else None
    different = list(_different(script, numbers, getattr(module, "MOVES", 0.0)))
    return _Result(_count(numbers), different, table)


def _different(script: Path, numbers: dict[str, Any], moves: float) -> Iterator[str]:
    committed = script.parent / "expected" / f"{script.stem}.json"
    if not committed.exists():
        yield f"nothing is committed: no expected/{committed.name}"
    else:
        yield from differences(numbers, json_format.loads(read_text(committed)), moves)


def _module(script: Path) -> ModuleType:
    """The script as papers.PAPER.NAME, whose neighbours it may import."""
    root = str(script.parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        return importlib.import_module(f"papers.{script.parent.name}.{script.stem}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ExtraError("figures need matplotlib: pip install 'tightbudget[plot]'") from error


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
    return folder


def _as_json(numbers: dict[str, Any]) -> str:
    return json_format.dumps(numbers, indent=1, ensure_ascii=False) + "\n"


# --------------------------------------------------------------------------- comparison


def differences(found: Any, expected: Any, moves: float, where: str = "") -> Iterator[str]:
    """A line for each number that is not as expected.

    Two pairs of certified ends can hold the same exact value if they overlap, and the new one
    must not be looser than promised. All else is equal; but what was searched for, and what
    depends on it, may have moved by the share ``moves``.
    """
    if _is_bounds(found) and _is_bounds(expected):
        new, old = Bounds(**found), Bounds(**expected)
        if max(new.lower, old.lower) * (1.0 - moves) > min(new.upper, old.upper):
            yield f"{where}: {new} does not overlap {old}"
        elif new.relative_gap > max(_GAP, old.relative_gap):
            yield f"{where}: {new} is wider than {old}"
    elif isinstance(found, dict) and isinstance(expected, dict):
        for name in dict.fromkeys([*expected, *found]):
            inside = f"{where}/{name}" if where else name
            if name not in found or name not in expected:
                yield f"{inside}: {'missing' if name in expected else 'not expected'}"
            else:
                yield from differences(found[name], expected[name], moves, inside)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, moves, f"{where}[{i}]")
    elif isinstance(found, float) and isinstance(expected, float):
        if found != expected and not abs(found - expected) <= moves * abs(expected):
            yield f"{where}: {found!r}, expected {expected!r}"
    elif found != expected:
        yield f"{where}: {found!r}, expected {expected!r}"


def _is_bounds(x: Any) -> bool:
    return isinstance(x, dict) and x.keys() == {"lower", "upper"}


def _count(x: Any) -> int:
    """Numbers; two certified ends are one."""
    if _is_bounds(x) or not isinstance(x, (dict, list)):
        return 1
    return sum(_count(inside) for inside in (x.values() if isinstance(x, dict) else x))
