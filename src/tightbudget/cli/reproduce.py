"""``tightbudget reproduce``: papers' tables and figures anew, held against what is committed."""

from __future__ import annotations

import importlib
import json as json_format
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import tightbudget
from tightbudget import Bounds
from tightbudget.cli.completion import papers as papers_begun
from tightbudget.cli.options import AsJson
from tightbudget.cli.output import Stopwatch, checklist, print_json, print_rows
from tightbudget.cli.report import Reproduction, as_html, as_markdown
from tightbudget.errors import ExtraError, FileError
from tightbudget.numerics.validate import one_of, positive_count
from tightbudget.text_file import read_text, write_text

# src/tightbudget is two folders below the root of a checkout
_PAPERS = Path(tightbudget.__file__).resolve().parents[2] / "papers"
_DIFFERS = 1
_GAP = 1e-3  # certified bounds may be this far apart, relative, or as far as the committed ones
# where that is far: processors round differently, and a search may then stop one pass earlier; the
# widest that was found on one with AVX-512 is 1.07 times as wide as on one without
_SLACK = 1.25
_FORMATS = (".png", ".svg")
_MEASURED = "seconds"  # numbers of this name depend on the machine and are not compared


@dataclass(frozen=True)
class _Result:
    """One table or figure, with the numbers that differ from the committed ones."""

    entry: Reproduction
    numbers: int = 0
    different: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        """Returns the result for programs."""
        numbers = {"numbers": self.numbers, "different": list(self.different)}
        return self.entry.said | (numbers if self.numbers else {})

    def for_people(self) -> Reproduction:
        """Returns the result for people, with a word on the numbers."""
        if not self.numbers:
            return self.entry
        text = f"{self.numbers}, as expected"
        if self.different:
            text = "\n".join([f"{self.numbers}, of which these differ:", *self.different])
        return replace(self.entry, said=self.entry.said | {"numbers": text})


def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(
            help="Folders in papers/.",
            show_default="all",
            metavar="[PAPER]...",
            autocompletion=papers_begun,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="A figure's number or name, such as 12 or filter; may be repeated. Without "
            "figures and tables asked for it is all of them."
        ),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="A table's number or name; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where pictures, numbers and report go.")] = Path("out"),
    processes: Annotated[int, typer.Option(help="How many scripts run at a time.")] = 2,
    json: AsJson = False,
) -> None:
    """Computes papers' tables and figures anew, and compares them with the numbers committed.

    Writes pictures (PNG, SVG), their numbers (JSON) and a report (report.md, report.html): for each
    table or figure the paper's claim, the result, and whether they match. Needs a checkout of the
    project, in which the papers lie, and the extra plot. Exit code 1 says that a number differs
    from the committed one.

    For example: tightbudget reproduce hartmann-2022 --table 1 --figure filter
    """
    watch = Stopwatch()
    results = _run_all(_scripts(papers, figure, table), out, positive_count(processes=processes))
    entries = [result.for_people() for result in results]
    write_text(_made(out) / "report.md", as_markdown(entries))
    write_text(out / "report.html", as_html(entries))
    if json:
        answer = {result.entry.name: result.content() for result in results}
        print_json({"results": answer, "wrote": str(out), "seconds": watch.seconds})
    else:
        rows = {entry.name: entry.in_words() for entry in entries}
        print_rows(rows | {"wrote": f"{out / 'report.html'}", "seconds": f"{watch.seconds:.2f}"})
    if any(result.different for result in results):
        raise typer.Exit(_DIFFERS)


# ------------------------------------------------------------------------------ scripts


def _scripts(
    papers: list[str] | None, figures: list[str] | None, tables: list[str] | None
) -> list[Path]:
    """Lists the scripts of the tables and figures that are asked for.

    Raises:
        FileError: there is no folder of papers.
        ParameterError: no such paper, table or figure.
    """
    if not _PAPERS.is_dir():
        raise FileError(
            f"{_PAPERS}: no such folder; tables and figures of papers are in a checkout of the "
            "project, not in the installed package"
        )
    found = {kind: sorted(_PAPERS.glob(f"*/{kind}_*.py")) for kind in ("figure", "table")}
    keys = tuple(sorted({s.parent.name for scripts in found.values() for s in scripts}))
    asked = {one_of(keys, paper=paper.replace("-", "_")) for paper in papers or keys}
    of_papers = {
        kind: [script for script in scripts if script.parent.name in asked]
        for kind, scripts in found.items()
    }
    if figures or tables:
        of_papers = {
            "figure": _named(of_papers["figure"], figure=figures or []),
            "table": _named(of_papers["table"], table=tables or []),
        }
    chosen = [script for scripts in of_papers.values() for script in scripts]
    return sorted(chosen, key=lambda script: script.parent.name)


def _named(scripts: list[Path], **wanted: list[str]) -> list[Path]:
    """Picks the scripts that a name means: 1 is also 01, and 12 includes its part 12_coverup.

    Raises:
        ParameterError: a name means no script.
    """
    ((kind, names),) = wanted.items()
    known = {script: script.stem.removeprefix(f"{kind}_") for script in scripts}
    meant = set()
    for name in names:
        key = name.replace("-", "_").lstrip("0")
        said = {script: own.lstrip("0") for script, own in known.items()}
        some = {s for s, own in said.items() if key in (own, own.partition("_")[0])}
        meant |= some or {one_of(tuple(dict.fromkeys(known.values())), **{kind: name})}
    return [script for script in scripts if script in meant]


def _run_all(scripts: Sequence[Path], out: Path, processes: int) -> list[_Result]:
    """Runs the scripts, and returns their results in order."""
    with checklist([script.stem for script in scripts]) as done:
        if min(processes, len(scripts)) > 1:
            return _spread(scripts, out, processes, done)
        results = []
        for i, script in enumerate(scripts):
            results.append(_run(script, out))
            done(i)
        return results


def _spread(
    scripts: Sequence[Path], out: Path, processes: int, done: Callable[[int], None]
) -> list[_Result]:
    """Runs the scripts in several processes; an interruption ends them all."""
    # a fork would copy the checklist's thread
    workers = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    try:
        with _deaf():  # the workers start here: a Ctrl-C of the terminal is for this process alone
            running = [workers.submit(_run, script, out) for script in scripts]
        for i, one in enumerate(running):
            one.add_done_callback(lambda _, i=i: done(i))  # type: ignore[misc]
        return [one.result() for one in running]
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        workers.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Delays interruptions until the end; processes that start meanwhile ignore them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(script: Path, out: Path) -> _Result:
    """Runs one script: it computes, writes, compares and judges.

    A script has CLAIM, ``numbers()``, ``finding(numbers)`` and ``draw(numbers, path)`` or
    ``table(numbers)``. If it needs data that are not part of the project it says where in NEEDS;
    if its numbers depend on a search for prices, it says in MOVES by how much, relative, another
    search may move them.
    """
    module, paper = _module(script), script.parent.name
    title = (module.__doc__ or "").partition("\n")[0].rstrip(".")
    entry = Reproduction(f"{paper}/{script.stem}", title, {"paper": module.CLAIM})
    needs: Path | None = getattr(module, "NEEDS", None)
    if needs is not None and not needs.exists():
        return _Result(replace(entry, said=entry.said | {"skipped": f"{needs} is not there"}))
    numbers = module.numbers()
    path = _made(out / paper) / script.stem
    write_text(path.with_suffix(".json"), _as_json(numbers))
    if hasattr(module, "draw"):
        for suffix in _FORMATS:
            module.draw(numbers, path.with_suffix(suffix))
        entry = replace(entry, picture=entry.name)
    if hasattr(module, "table"):
        entry = replace(entry, table=module.table(numbers))
    finding = module.finding(numbers)
    said = {"found": finding.text, "verdict": finding.verdict.value}
    different = tuple(_different(script, numbers, getattr(module, "MOVES", 0.0)))
    return _Result(replace(entry, said=entry.said | said), _count(numbers), different)


def _different(script: Path, numbers: dict[str, Any], moves: float) -> Iterator[str]:
    committed = script.parent / "expected" / f"{script.stem}.json"
    if not committed.exists():
        yield f"nothing is committed: no expected/{committed.name}"
    else:
        yield from differences(numbers, json_format.loads(read_text(committed)), moves)


def _module(script: Path) -> ModuleType:
    """Imports a script as papers.PAPER.NAME, so that it may import its neighbours."""
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
    """Lists the numbers that are not as expected, one line for each.

    Two pairs of certified bounds agree if they overlap (they may hold the same exact value) and the
    new pair is not looser than promised. Other numbers must be equal, with two exceptions: results
    of a search may differ by the share ``moves``, and ``seconds`` depend on the machine.
    """
    if _is_bounds(found) and _is_bounds(expected):
        new, old = Bounds(**found), Bounds(**expected)
        if max(new.lower, old.lower) * (1.0 - moves) > min(new.upper, old.upper):
            yield f"{where}: {new} does not overlap {old}"
        elif new.relative_gap > max(_GAP, _SLACK * old.relative_gap):
            yield f"{where}: {new} is wider than {old}"
    elif isinstance(found, dict) and isinstance(expected, dict):
        for name in dict.fromkeys([*expected, *found]):
            inside = f"{where}/{name}" if where else name
            if name not in found or name not in expected:
                yield f"{inside}: {'missing' if name in expected else 'not expected'}"
            elif name != _MEASURED:
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
    """Counts the numbers of a result; a pair of bounds counts as one."""
    if _is_bounds(x) or not isinstance(x, (dict, list)):
        return 1
    return sum(_count(inside) for inside in (x.values() if isinstance(x, dict) else x))
