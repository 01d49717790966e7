"""Checks of a number that somebody printed: can it be true, and if not, why not."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from tightbudget import notebook
from tightbudget.accounting.calibrate import calibrate
from tightbudget.errors import FileError, ParameterError, TightBudgetError
from tightbudget.evidence.readings import OtherReading, readings, with_noise
from tightbudget.evidence.training import runs_of_training
from tightbudget.mechanisms.composition import Composable, Composition, compose, from_steps
from tightbudget.notation.words import in_words
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.printed import Printed
from tightbudget.numerics.rounding import double_up
from tightbudget.numerics.validate import nearest, probability
from tightbudget.text_file import read_text

_VERSION = 1
_CLOSE = 0.01  # relative gap up to which the interval of a reading names a number
_GAP = 1e-3  # wanted relative gap of a reading, and of the noise that would do
_WHICH_RATE = "batch_size does not divide dataset_size: say sample_rate, the rate of the stack"
_ABOVE = "an event of which an upper bound is known"

Verdict = Literal["agrees", "open", "too low", "too high"]


@dataclass(frozen=True, repr=False)
class NumberCheck:
    """A check of a printed epsilon: what is certified, a verdict, and where it may come from.

    Guarantee: "too low" is a proof that some two neighbouring data sets lose more, and "too high"
    that the number holds and so does a smaller one, for every number that the printed decimal
    stands for.

    Attributes:
        run: what was run.
        printed: the epsilon as printed; it stands for all numbers up to one unit of its last place
            above and below it.
        delta: the delta that it was printed for.
        epsilon: the certified bounds of epsilon at delta (nats).
        verdict: "too low" (refuted); "too high" (it holds, and a smaller one does); "agrees" (it
            may be the certified value); "open" (between two bounds of which nobody knows more, so
            that it is neither proved nor refuted).
    """

    run: Composition
    printed: str
    delta: float
    epsilon: Bounds
    verdict: Verdict

    @functools.cached_property
    def delta_at_printed(self) -> Bounds | None:
        """The certified bounds of delta at the largest epsilon that the decimal stands for.

        None where the number is not refuted.
        """
        most = self._number.most
        if self.verdict != "too low" or most is None:
            return None
        return self.run.answer(epsilon=double_up(most)).bounds

    @functools.cached_property
    def explained_by(self) -> Mapping[str, Bounds]:
        """Other readings of the run whose epsilon the number may be, each with its bounds.

        They are hints, and prove nothing; none are looked for where the number may be right.
        """
        if self.verdict in ("agrees", "open"):
            return {}
        return _explained(self.run, self._number, self.delta)

    @functools.cached_property
    def noise(self) -> float | None:
        """The share of the noise with which a number that is too high still holds, by calibration.

        None for any other number, and where some part of the run has no noise to scale.
        """
        if self.verdict != "too high":
            return None
        return _noise(self.run, self._number, self.delta)

    @property
    def _number(self) -> Printed:
        return Printed.of(printed=self.printed)

    @property
    def holds(self) -> bool | None:
        """Whether the decimal as it stands is an upper bound: True or False if proved, else None.

        A number that "agrees" was perhaps rounded down, and then it is none.
        """
        value, (lower, upper) = self._number.value, self.epsilon
        if value is None or value >= upper:
            return True
        return False if value < lower else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values: the verdict, the number, its bounds and the readings."""
        at = self.delta_at_printed
        return {
            "verdict": self.verdict,
            "printed": self.printed,
            "delta": self.delta,
            "epsilon": self.epsilon.to_dict(),
            "delta_at_printed": None if at is None else at.to_dict(),
            "explained_by": {what: found.to_dict() for what, found in self.explained_by.items()},
            "noise": self.noise,
        }

    def rows(self) -> dict[str, str]:
        """Returns each part of the answer with its name, for people."""
        rows = {
            "what": in_words(self.run),
            "printed": f"{self.printed} at delta {self.delta!r}",
            "epsilon": f"{self.epsilon:.6g}" if self.epsilon.apart else str(self.epsilon),
            "verdict": f"{self.verdict}: {self._why}",
        }
        at = self.delta_at_printed
        if at is not None:
            rows["delta"] = f"at least {_down(at)} at the printed epsilon"
        if self.noise is not None:
            rows["noise"] = f"{100 * self.noise:.4g} % of it would do for the printed epsilon"
        if self.explained_by:
            rows["it is"] = "\n".join(
                f"{what}: {found:.6g}" for what, found in self.explained_by.items()
            )
        return rows

    @property
    def _why(self) -> str:
        lower, upper = f"{self.epsilon:.6g}"[1:-1].split(", ")
        if self.verdict == "too low" and self.epsilon.lower == math.inf:
            return "no epsilon holds at this delta, which is proved"
        if self.verdict == "too low":
            return f"epsilon is at least {lower}, which is proved"
        if self.verdict == "too high":
            return f"it holds, and so does {upper}"
        if self.verdict == "agrees" and self.holds is False:
            return f"it may be the certified value, rounded down: no bound is below {lower}"
        if self.verdict == "agrees":
            return "it may be the certified value"
        return f"neither proved nor refuted: the two bounds are apart ({self.epsilon.apart})"

    def __str__(self) -> str:
        rows = self.rows()
        wide = max(map(len, rows)) + 2
        return "\n".join(
            f"{name:<{wide}}" + text.replace("\n", "\n" + " " * wide) for name, text in rows.items()
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.shown(notebook.table(list(self.rows().items())))


def check(
    run: Composable,
    *,
    epsilon: str | float,
    delta: str | float,
    rtol: float = 1e-4,
) -> NumberCheck:
    """Checks whether a printed epsilon can be that of a run, and tries known wrong readings.

    Guarantee: that of :class:`NumberCheck`. A number that lies in the certified bounds is never
    refuted, and one that is below them by more than a unit of its last place always is.

    Args:
        run: the mechanism or composition.
        epsilon: the number as printed, such as "8.0" (nats). A number in place of a text counts as
            the decimal that Python prints for it.
        delta: what it was printed for, in [0, 1]; read as the nearest double.
        rtol: wanted relative gap of the bounds.

    Raises:
        ParameterError: an argument is refused.
        PrecisionError: the bounds could not be brought so close together.
    """
    return _check(compose([run]), Printed.of(epsilon=epsilon), _delta(delta), "", rtol)


@dataclass(frozen=True)
class PrintedClaim:
    """A claim as a file has it: what was run, and the epsilon and delta that were printed.

    Attributes:
        run: what was run.
        epsilon, delta: as printed.
        above: "" or why only upper bounds of the run are known.
        others: what the file may mean beside the run, such as other sampling rates.
    """

    run: Composition
    epsilon: str
    delta: str
    above: str = ""
    others: tuple[Composition, ...] = ()

    def check(self, rtol: float = 1e-4) -> NumberCheck:
        """Checks the claim as :func:`check` does.

        Guarantee: that of :class:`NumberCheck`, for each run that the file may mean: a number that
        is right for one of them is never refuted, and the answer is about that one.
        """
        printed, delta = Printed.of(epsilon=self.epsilon), _delta(self.delta)
        runs = (self.run, *self.others)
        return _together([_check(run, printed, delta, self.above, rtol) for run in runs])


def read_claim(path: str | Path) -> PrintedClaim:
    """Reads a claim from a file of JSON or TOML: a run, and ``epsilon`` and ``delta`` as printed.

    The run is one of: the ``steps`` of a plan file or of a composition's JSON; ``training``, a
    table with ``noise_multiplier``, ``batch_size``, ``dataset_size``, ``sampler``, and ``epochs``
    or ``steps`` (these may stand at the top, too), and ``sample_rate`` where Poisson samples are
    not drawn at batch_size / dataset_size; ``event``, a tree of dp-accounting's events as
    ``DpEvent.to_named_tuple`` names its parts, and ``neighboring_relation``.

    Guarantee: a key that is not understood is refused, never skipped.

    Args:
        path: the file; TOML if its name ends in .toml (or .toml.gz), else JSON; gzipped if it ends
            in .gz.

    Raises:
        FileError: the file cannot be read, or is not a claim; names the path and the reason.
        ExtraError: it has an event, and dp-accounting is not installed.
    """
    content, said = _parsed(read_text(path), str(path))
    try:
        return _claim(content, said)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except ParameterError as error:
        raise FileError(f"{path}: {error}") from error


# ------------------------------------------------------------------------------- a check


def _check(
    whole: Composition, printed: Printed, target: float, above: str, rtol: float
) -> NumberCheck:
    """Checks a printed epsilon.

    Args:
        whole: the run.
        printed: its epsilon.
        target: the delta of the epsilon.
        above: "" or why only upper bounds of the run are known; then nothing is refuted.
        rtol: wanted relative gap of the bounds.
    """
    bounds = whole.epsilon(target, rtol)
    if above:
        bounds = Bounds(0.0, bounds.upper, apart=above)
    judged = printed.judged(bounds)
    verdict: Verdict = "agrees"
    if judged == "too low":
        verdict = "too low"
    elif judged in ("too high", "inf"):
        verdict = "too high"
    elif bounds.apart and printed.most is not None and not _reaches(printed.most, bounds.upper):
        verdict = "open"  # guard: open-is-not-proved
    return NumberCheck(whole, printed.text, target, bounds, verdict)


def _together(found: list[NumberCheck]) -> NumberCheck:
    """Joins the answers for all runs that a file may mean."""
    for verdict in ("agrees", "open"):  # guard: right-in-one-reading
        known = [one for one in found if one.verdict == verdict]
        if known:
            return known[0]
    least = min(found, key=lambda one: one.epsilon.lower)
    most = max(found, key=lambda one: one.epsilon.upper)
    if least.verdict == most.verdict:
        return least if least.verdict == "too low" else most
    bounds = Bounds(least.epsilon.lower, most.epsilon.upper, apart=_WHICH_RATE)
    return dataclasses.replace(most, epsilon=bounds, verdict="open")


def _delta(value: Any) -> float:
    """Reads a delta, a text or a number, as the nearest double."""
    printed = Printed.of(delta=value)
    return probability(delta=math.inf if printed.value is None else nearest(printed.value))


def _reaches(most: Fraction, upper: float) -> bool:
    return upper < math.inf and most >= Fraction(upper)


def _explained(run: Composition, printed: Printed, delta: float) -> dict[str, Bounds]:
    """Finds the readings of a run whose epsilon a printed number may be."""
    found = {}
    for reading in readings(run):
        bounds = _of_reading(reading, delta)
        # an interval that is wide holds numbers of any origin
        close = bounds is not None and bounds.relative_gap <= _CLOSE
        if bounds is not None and close and printed.judged(bounds) == "agrees":
            found[reading.what] = bounds
    return found


def _of_reading(reading: OtherReading, delta: float) -> Bounds | None:
    """Bounds the epsilon of a reading; None where there is none, or it is not known."""
    at = nearest(Fraction(delta) * reading.delta)
    if not 0.0 < at < 1.0:
        return None
    try:
        bounds = reading.run.answer(delta=at, rtol=_GAP).bounds
    except TightBudgetError:
        return None
    return bounds if bounds.upper < math.inf else None


def _noise(run: Composition, printed: Printed, delta: float) -> float | None:
    """Finds the share of a run's noise with which a printed epsilon still holds."""
    if printed.value is None or not 0.0 < delta < 1.0 or with_noise(run, 0.5) is None:
        return None
    try:
        found = calibrate(
            lambda factor: _with_noise(run, factor),
            epsilon=float(printed.value),
            delta=delta,
            rtol=_GAP,
        )
    except TightBudgetError:
        return None
    return found.value if found.value < 1.0 else None


def _with_noise(run: Composition, factor: float) -> Composition:
    scaled = with_noise(run, factor)
    assert scaled is not None
    return scaled


def _down(bounds: Bounds) -> str:
    return f"{bounds:.4g}"[1:].split(",")[0]


# -------------------------------------------------------------------------------- a file


def _parsed(text: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parses a file twice: with numbers, and with numbers as the texts that stand there."""
    if name.removesuffix(".gz").endswith(".toml"):
        try:
            return tomllib.loads(text), tomllib.loads(text, parse_float=str)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{name}: not TOML: {error}") from error
    try:
        content = json.loads(text, object_pairs_hook=_once)
        said = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{name}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FileError(f"{name}: must have a table, with epsilon, delta and a run")
    return content, said


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a table of pairs, of which none may be there twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return table


def _claim(content: dict[str, Any], said: dict[str, Any]) -> PrintedClaim:
    version = content.pop("tightbudget", _VERSION)
    if isinstance(version, bool) or version != _VERSION:
        raise FileError(f"tightbudget (the version) must be {_VERSION}, got {version!r}")
    for name in ("epsilon", "delta"):
        if name not in content:
            raise FileError(f"a claim needs {name}, as it was printed")
        if isinstance(content.pop(name), bool):
            raise FileError(f"{name} must be a number as printed, got a bool")
    printed = {name: str(said[name]) for name in ("epsilon", "delta")}
    Printed.of(epsilon=printed["epsilon"])
    _delta(printed["delta"])
    runs, above = _run(content)
    return PrintedClaim(runs[0], **printed, above=above, others=runs[1:])


def _run(content: dict[str, Any]) -> tuple[tuple[Composition, ...], str]:
    """Makes the runs that a claim may be about; and says why only upper bounds are known, if so."""
    if isinstance(content.get("steps"), list):
        _nothing_more(content, "steps")
        return (from_steps(content["steps"]),), ""
    if "event" in content:
        _nothing_more(content, "event", "neighboring_relation")
        run, above = _of_event(content["event"], content.get("neighboring_relation"))
        return (run,), above
    if "training" in content:
        _nothing_more(content, "training")
        content = content["training"]
        if not isinstance(content, dict):
            raise FileError(f"training must be a table, got {content!r}")
    elif "noise_multiplier" not in content:
        raise FileError("a claim needs a run: steps (of a plan), training or event")
    return runs_of_training(content), ""


def _nothing_more(content: dict[str, Any], *known: str) -> None:
    for name in content:
        if name not in known:
            listed = ", ".join(("epsilon", "delta", *known))
            raise FileError(f"a claim with {known[0]} has {listed} only, got {name!r}")


def _of_event(event: Any, relation: Any) -> tuple[Composition, str]:
    # an extra, and needed for events alone
    from tightbudget.adapters.dp_accounting import events

    named = "ADD_OR_REMOVE_ONE" if relation is None else relation
    try:
        under = events.Relation[named]
    except (KeyError, TypeError):
        known = ", ".join(r.name for r in events.Relation)
        raise FileError(f"neighboring_relation must be one of {known}, got {named!r}") from None
    run = events.from_dp_event(events.event_from_dict(event), under)
    return run, _ABOVE if _only_above(run.to_dict()) else ""


def _only_above(table: Any) -> bool:
    """Says whether the table of a mechanism that stands for an event has one that may be above it.

    Events become curves, public coins and groups where no mechanism is known to be the event.
    """
    if isinstance(table, Mapping):
        above = table.get("mechanism") in ("curve", "either") or "group" in table
        return above or any(map(_only_above, table.values()))
    return isinstance(table, (list, tuple)) and any(map(_only_above, table))
