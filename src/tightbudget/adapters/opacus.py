"""The accountant ``tight`` for Opacus: importing this module registers it.

It proves the price of Gaussian steps with the noise multipliers that Opacus reports, on batches
that the loader's sampler draws. Opacus tells its accountants a sample rate and no sampler, also for
``poisson_sampling=False``. So this module wraps ``PrivacyEngine.make_private``, and an engine whose
accountant is ``tight`` hands over the loader. A loader that shuffles or cuts batches is accounted
as a pass over the data, one that draws with replacement by its batches, and any other is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tightbudget.accounting.calibrate import calibrate
from tightbudget.errors import ExtraError, ParameterError, RelationError
from tightbudget.links import DOCUMENTATION
from tightbudget.mechanisms.approximate_dp import ApproximateDP
from tightbudget.mechanisms.composition import Composition, Mechanism
from tightbudget.mechanisms.gaussian import Gaussian
from tightbudget.mechanisms.glance import glance
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import (
    count,
    non_negative,
    positive_count,
    probability,
    refuse,
)
from tightbudget.release.stopping import StoppingCallback

try:
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants import IAccountant, register_accountant
    from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
    from opacus.utils.uniform_sampler import (
        DistributedUniformWithReplacementSampler,
        UniformWithReplacementSampler,
    )
    from torch.utils.data import (
        BatchSampler,
        RandomSampler,
        SequentialSampler,
        SubsetRandomSampler,
    )
except ImportError as error:
    raise ExtraError("the accountant needs Opacus: pip install 'tightbudget[opacus]'") from error

__all__ = ["TightAccountant", "dp_sgd_batch", "dp_sgd_pass", "dp_sgd_step"]

_PAGE = f"see {DOCUMENTATION}problems/shuffled-batches.html"


def dp_sgd_step(
    noise_multiplier: float, sample_rate: float, *, relation: Neighbouring | None = None
) -> Mechanism:
    """Returns the mechanism of one step of Opacus: Gaussian noise on a Poisson sample.

    Guarantee: no two data sets that differ in one record are told apart better by a step than by
    the mechanism. Source: Zhu, Dong, Wang 2022, Theorem 11.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0;
            with 0 the step shows each record of the sample.
        sample_rate: in [0, 1]; for the loader that Opacus returns, 1 / len(loader).
        relation: None for a record added or removed; ``Neighbouring.ZERO_OUT`` for a record whose
            place is left empty.

    Raises:
        ParameterError: an argument is refused.
    """
    base = _unsampled(non_negative(noise_multiplier=noise_multiplier), relation)
    return base.subsampled(probability(sample_rate=sample_rate))


def dp_sgd_pass(noise_multiplier: float, batches: int) -> Mechanism:
    """Returns the mechanism of one pass of Opacus over shuffled batches.

    Guarantee: no two data sets that differ in one record are told apart better by a pass than by
    the upper bound of the mechanism. Source: see :class:`tightbudget.Shuffled`.

    The relation is ``Neighbouring.ZERO_OUT``: a record's place is left empty. Batches may differ in
    size, as the last one does: of all shuffles with so many batches, the one with batches of equal
    size shows least. To see that, exchange the batches of a pass at random, which needs no data.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0.
        batches: the number of batches that the data is cut into. With 1, the observer knows each
            record's batch.

    Raises:
        ParameterError: an argument is refused.
    """
    sigma = non_negative(noise_multiplier=noise_multiplier)
    whole = _unsampled(sigma, Neighbouring.ZERO_OUT)
    parts = positive_count(batches=batches)
    return whole if parts == 1 or sigma == 0.0 else whole.shuffled(parts)


def dp_sgd_batch(noise_multiplier: float, batch: int, of: int) -> Mechanism:
    """Returns the mechanism of one step of Opacus on a batch that is drawn with replacement.

    Guarantee: no two data sets that differ in one record are told apart better by a step than by
    the upper bound of the mechanism; the lower bound is attained by some data sets. Source: see
    :class:`tightbudget.Batches`.

    The relation is ``Neighbouring.REPLACE_ONE``: one record is another one. Each place of the batch
    gets a record of its own draw, so that a record may be in a batch several times.

    Args:
        noise_multiplier: the noise's standard deviation divided by the clipping norm, >= 0.
        batch: the number of draws for one batch, from 1 to ``of``.
        of: the number of records of the data set.

    Raises:
        ParameterError: an argument is refused.
    """
    sigma = non_negative(noise_multiplier=noise_multiplier)
    if sigma == 0.0:
        return _unsampled(sigma, Neighbouring.REPLACE_ONE)
    return Gaussian(sigma).batches(batch, of, replacement=True)


def _unsampled(sigma: float, relation: Neighbouring | None) -> Mechanism:
    """Makes the Gaussian mechanism, or one that shows the record where ``sigma`` is 0."""
    if sigma == 0.0:
        return ApproximateDP(0.0, 1.0, relation=relation)
    return Gaussian(sigma, relation=relation)


# --------------------------------------------------------------------------- what a loader does


def _counting(kind: Any) -> Any:
    """Makes the class of a batch sampler that draws as ``kind`` does, and counts."""

    class Counting(kind):  # type: ignore[misc]
        __slots__ = ()  # so that an object of the class kind can change to this one

        begun = 0  # the passes
        drawn = 0  # the batches of the last pass; ahead of the loop if the loader has workers
        crossed = False  # True once a pass has gone on after another one began

        def __iter__(self: Any) -> Iterator[Any]:
            self.begun += 1
            self.drawn, this = 0, self.begun
            for batch in super().__iter__():
                self.crossed = self.crossed or this != self.begun
                self.drawn += 1
                yield batch

    return Counting


_POISSON = (UniformWithReplacementSampler, DistributedUniformWithReplacementSampler)
# The class of a batch sampler is changed, and not the loader's sampler: Opacus's own tools ask for
# these classes, and make new loaders with the sampler of a loader.
_COUNTED: dict[type, Any] = {kind: _counting(kind) for kind in (BatchSampler, *_POISSON)}


def _watched(loader: Any) -> Any:
    """Returns the loader's batch sampler, which counts from now on.

    Raises:
        ParameterError: the loader has a batch sampler of which nothing is known.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) in _COUNTED:
        sampler.__class__ = _COUNTED[type(sampler)]
    if type(sampler) not in _COUNTED.values():
        must = f"draw by Poisson, or cut batches with torch's BatchSampler ({_PAGE})"
        raise refuse("data_loader.batch_sampler", must, sampler)
    return sampler


def _batches(loader: Any) -> int:
    """Counts the batches of a pass of which nobody knows which one a record is in.

    Returns:
        the number of batches if the loader shuffles all records; 1 if the order may be known, or if
        some records may be left out.

    Raises:
        ParameterError: a record may be in several batches of a pass, or the order is not known to
            be drawn without a look at the data.
    """
    batches = _watched(loader)
    order = batches.sampler
    if type(order) is RandomSampler and not order.replacement:
        size, drawn = len(order.data_source), order.num_samples
    elif type(order) is SubsetRandomSampler:
        size, drawn = len(set(order.indices)), len(order.indices)
    elif type(order) is SequentialSampler:
        return 1
    else:
        must = f"visit each record once in a pass, in an order that no data decides ({_PAGE})"
        raise refuse("data_loader.sampler", must, order)
    if drawn > size:
        raise refuse("data_loader.sampler", f"visit each record once in a pass ({_PAGE})", order)
    left_out = batches.drop_last and drawn % batches.batch_size
    return 1 if drawn < size or left_out else len(batches)


def _replaced(loader: Any) -> tuple[int, int] | None:
    """Returns the draws of a batch, and the records, of a loader that draws with replacement.

    Returns:
        None for a loader that draws in another way.

    Raises:
        ParameterError: the last batch of a pass is smaller than the others.
    """
    cut = _watched(loader)
    order: Any = getattr(cut, "sampler", None)
    if type(order) is not RandomSampler or not order.replacement:
        return None
    if not cut.drop_last and order.num_samples % cut.batch_size:
        must = "be True, or num_samples a multiple of batch_size, for draws with replacement"
        raise refuse("drop_last", must, cut.drop_last)
    return int(cut.batch_size), len(order.data_source)


def _one_worker() -> None:
    """Refuses distributed training, in which each worker would cut batches of its own."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        workers = torch.distributed.get_world_size()
        if workers > 1:
            must = f"be 1 without Poisson sampling: each worker has batches of its own ({_PAGE})"
            raise refuse("the number of workers", must, workers)


def _epoch(loader: Any, noise_multiplier: float) -> Composition:
    """Makes the composition of one pass of a loader, with the upper bound of its course."""
    sampler = _watched(loader)
    if isinstance(sampler, _POISSON):
        return dp_sgd_step(noise_multiplier, sampler.sample_rate) * len(sampler)
    if draws := _replaced(loader):
        return dp_sgd_batch(noise_multiplier, *draws) * len(sampler)
    _batches(loader)  # refuses what is unknown
    # the upper bound for a shuffle is that of a known order
    return dp_sgd_pass(noise_multiplier, 1) * 1


# --------------------------------------------------------------------------------- accountant


class TightAccountant(IAccountant):  # type: ignore[misc]
    """An accountant of Opacus with certified bounds: ``PrivacyEngine(accountant="tight")``.

    Guarantee: :meth:`bounds` contains the exact epsilon of :attr:`composition`, the larger one of
    both directions, if the numbers of steps do not depend on the data. The composition is the run
    itself for Poisson samples. For passes over the data it dominates the run, and its lower bound
    is one for the run if the data is shuffled and no record left out.

    Attributes:
        history: (noise multiplier, sample rate, steps) of Poisson samples, in order, as in Opacus's
            accountants.
        passes: (noise multiplier, batches, passes, steps) of loaders that cut the data in batches,
            in order; see :func:`dp_sgd_pass`.
        draws: (noise multiplier, batch, of, steps) of loaders that draw batches with replacement,
            in order; see :func:`dp_sgd_batch`.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self.passes: list[tuple[float, int, int, int]] = []
        self.draws: list[tuple[float, int, int, int]] = []
        self._stopping: StoppingCallback[Any] | None = None
        self._counted: tuple[float, float, int] | None = None  # the entry that step wrote last
        self._accepted: frozenset[str] = frozenset()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step.

        Raises:
            ParameterError: an argument is refused, or the callback refuses the step.
            SettlementError: the callback has a stop due, or its run is over.
        """
        history = self.history
        last = history[-1] if history else None
        # Most steps are as the one before. An entry that this method wrote has been checked, and a
        # tuple does not change: in a history that was edited or loaded, another object is the last.
        edited = last is not self._counted  # guard: edited-history-is-checked
        if (
            not edited
            and last is not None
            and type(noise_multiplier) in _NUMBERS
            and type(sample_rate) in _NUMBERS
            and last[0] == noise_multiplier
            and last[1] == sample_rate
        ):
            # guard: each-repeated-step-counts
            self._counted = history[-1] = (last[0], last[1], last[2] + 1)
            return
        mechanism = dp_sgd_step(noise_multiplier, sample_rate)
        if self._stopping is not None:
            self._stopping.step(mechanism)
        entry = _add(history, float(noise_multiplier), float(sample_rate))
        # guard: callback-is-told-each-step
        self._counted = entry if self._stopping is None else None

    def report_to(self, stopping: StoppingCallback[Any]) -> None:
        """Tells each step from now on to a callback, which refuses a step that is not paid for.

        The hook of Opacus runs before the model is updated: a refused step has no effect.
        """
        self._counted, self._stopping = None, stopping

    def accept_history_of(self, *mechanisms: str) -> None:
        """Lets :meth:`load_state_dict` take states of accountants that Opacus calls by these names.

        Who calls this says that each step in such a state was one Poisson sample at the rate that
        is written beside it, without adaptive clipping. Opacus's ``"rdp"``, ``"prv"`` and ``"gdp"``
        write the same rates if the loader did something else. ``PrivacyEngine.load_checkpoint``
        loads such checkpoints afterwards.

        Raises:
            ParameterError: a name is no text.
        """
        for name in mechanisms:
            if not isinstance(name, str):
                raise refuse("mechanism", "be the name of an accountant", name)
        self._accepted |= frozenset(mechanisms)

    @property
    def composition(self) -> Composition:
        """The composition of all steps so far, which also answers deltas, curves and risk.

        Raises:
            ParameterError: an entry of the history is refused.
            RelationError: draws with replacement were counted beside other steps.
        """
        passes = _checked_passes(self.passes)
        relation = Neighbouring.ZERO_OUT if passes else None
        return Composition(
            (
                *((dp_sgd_step(s, q, relation=relation), k) for s, q, k in _checked(self.history)),
                *((dp_sgd_pass(s, t), k) for s, t, k, _ in passes),
                *((dp_sgd_batch(s, b, n), k) for s, b, n, k in _checked_draws(self.draws)),
            )
        )

    def bounds(self, delta: float, rtol: float = 1e-4) -> Bounds:
        """Returns both bounds of epsilon: see :meth:`tightbudget.Composition.epsilon`."""
        return self.composition.epsilon(delta, rtol)

    def get_epsilon(self, delta: float, *, rtol: float = 1e-4, **_ignored: object) -> float:
        """Returns the upper bound of :meth:`bounds`.

        Opacus passes further keywords to all accountants; they change nothing here.
        """
        return self.bounds(delta, rtol).upper  # guard: upper-bound-reported

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[DPOptimizer], None]:
        """Returns the hook that Opacus calls after noise is added and before the model changes.

        Who attaches this hook by hand says that each step is a Poisson sample at ``sample_rate``. A
        :class:`opacus.PrivacyEngine` attaches the hook of :meth:`hook_for` in its place.
        The hook refuses a step that :func:`dp_sgd_step` does not describe, with a ParameterError:
        a step over accumulated batches, or with adaptive clipping.
        """

        def hook(optimizer: DPOptimizer) -> None:
            _one_batch(optimizer)
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)

        return hook

    def hook_for(self, loader: Any) -> Callable[[DPOptimizer], None]:
        """Returns the hook of an optimizer whose batches come from a loader.

        The hook sees how the loader draws: Poisson samples at the rate of its sampler, whatever
        rate Opacus reports, or passes over the data. It refuses, with a ParameterError, a step that
        no batch of the loader was drawn for, as after training on another loader.

        Args:
            loader: the loader that ``make_private`` has returned.

        Raises:
            ParameterError: the loader draws in a way that is not known here.
        """
        sampler = _watched(loader)
        if isinstance(sampler, _POISSON):
            self._same_relation(replaced=False)
            return self._sample_hook(
                sampler,
                "sample_rate",
                lambda: sampler.sample_rate,
                lambda noise, rate: self.step(noise_multiplier=noise, sample_rate=rate),
            )
        _one_worker()
        if _replaced(loader):
            self._same_relation(replaced=True)
            return self._sample_hook(
                sampler, "(batch_size, records)", lambda: _replaced(loader), self._draw
            )
        self._same_relation(replaced=False)
        return self._pass_hook(loader, sampler, _batches(loader))

    def _same_relation(self, *, replaced: bool) -> None:
        """Refuses a loader whose steps do not compose with those that were counted.

        Args:
            replaced: whether the loader draws with replacement, so that a neighbour has another
                record in the place of one.
        """
        if self.history or self.passes if replaced else self.draws:
            ways = "another record in its place", "a record that is there or not"
            raise RelationError(
                f"the data_loader's steps are for {ways[not replaced]}, and the steps so far for "
                f"{ways[replaced]}: they need an engine of their own ({_PAGE})"
            )

    def _sample_hook(
        self,
        sampler: Any,
        name: str,
        told: Callable[[], Any],
        counted: Callable[[float, Any], None],
    ) -> Callable[[DPOptimizer], None]:
        """Makes the hook for a loader whose batches are drawn independently of each other.

        Args:
            sampler: the batch sampler, which counts.
            name: what a refusal calls the value of ``told``.
            told: reads how the loader draws, which must not change.
            counted: counts one step with this noise multiplier and this value of ``told``.
        """
        way, pending, seen = told(), 0, (sampler.begun, sampler.drawn)

        def hook(optimizer: DPOptimizer) -> None:
            nonlocal pending, seen
            _one_batch(optimizer)
            now = told()
            if now != way:  # guard: loader-draws-as-before
                raise refuse(name, f"stay {way}, as when make_private was called", now)
            begun, drawn = seen
            # batches of passes that were begun and left are not waited for
            pending += sampler.drawn - (drawn if sampler.begun == begun else 0)
            seen = (sampler.begun, sampler.drawn)
            if pending < 1:  # guard: step-has-a-sample
                raise _no_batch()
            counted(optimizer.noise_multiplier, way)
            pending -= 1

        return hook

    def _draw(self, noise_multiplier: float, draws: tuple[int, int]) -> None:
        """Counts one step on a batch that was drawn with replacement."""
        mechanism = dp_sgd_batch(noise_multiplier, *draws)
        if self._stopping is not None:
            self._stopping.step(mechanism)
        _add(self.draws, float(noise_multiplier), *draws)

    def _pass_hook(self, loader: Any, sampler: Any, batches: int) -> Callable[[DPOptimizer], None]:
        """Makes the hook for a loader that cuts the data into batches.

        Args:
            loader: the loader, whose order and batch size are read again in each pass.
            sampler: the batch sampler of the loader, which counts.
            batches: the number of batches that :func:`_batches` has returned for the loader.
        """
        # the pass that the last step belongs to, its steps, their noise, and where it is counted
        this, steps, noise, counted_in = sampler.begun, sampler.drawn, 0.0, self.passes

        def hook(optimizer: DPOptimizer) -> None:
            nonlocal this, steps, noise, counted_in
            _one_batch(optimizer)
            if sampler.crossed:  # guard: one-pass-at-a-time
                raise ParameterError(
                    "the loader must be gone through once at a time: a pass went on after "
                    "another one had begun"
                )
            fresh = sampler.begun != this
            if sampler.drawn <= (0 if fresh else steps):  # guard: step-has-a-batch
                raise _no_batch()
            sigma = float(optimizer.noise_multiplier)
            if not fresh and sigma != noise:  # guard: noise-of-a-pass
                raise refuse("noise_multiplier", f"stay {noise} until a pass has ended", sigma)
            if fresh and (now := _batches(loader)) != batches:  # guard: loader-cuts-as-before
                must = f"stay {batches}, as when make_private was called"
                raise refuse("the number of unknown batches of a pass", must, now)
            steps = 0 if fresh else steps
            # a checkpoint that is loaded within a pass brings other passes, without this one
            lost = self.passes is not counted_in  # guard: pass-outlives-a-checkpoint
            if fresh or lost or self._last_pass(sigma, batches) is None:
                self._begin_pass(sigma, batches)
                this, noise, counted_in = sampler.begun, sigma, self.passes
            steps += 1
            where = self._last_pass(sigma, batches)
            assert where is not None
            _, _, passes, counted = self.passes[where]
            self.passes[where] = (sigma, batches, passes, counted + 1)

        return hook

    def _last_pass(self, noise_multiplier: float, batches: int) -> int | None:
        """Returns the index of the last entry of :attr:`passes` with these two numbers, if any."""
        for i in reversed(range(len(self.passes))):
            if self.passes[i][0] == noise_multiplier and self.passes[i][1] == batches:
                return i
        return None

    def _begin_pass(self, noise_multiplier: float, batches: int) -> None:
        """Counts one pass, of which no step was made yet."""
        mechanism = dp_sgd_pass(noise_multiplier, batches)
        if self._stopping is not None:
            self._stopping.step(mechanism)
        kind, passes = (noise_multiplier, batches), self.passes
        if passes and tuple(passes[-1][:2]) == kind:
            _, _, often, steps = passes[-1]
            passes[-1] = (*kind, often + 1, steps)  # guard: each-pass-counts
        else:
            passes.append((*kind, 1, 0))

    def state_dict(self, destination: Any = None) -> Any:
        """Returns the state that :meth:`load_state_dict` takes."""
        state = super().state_dict(destination)
        state["passes"], state["draws"] = list(self.passes), list(self.draws)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores the state that ``state_dict`` of a ``tight`` accountant has returned.

        Raises:
            ValueError: the argument is no such state, or one of another accountant that
                :meth:`accept_history_of` was not told of.
            ParameterError: an entry of its history is refused; the accountant stays as it was.
        """
        state = dict(state_dict or {})
        history = _checked(state.get("history", ()))
        passes, draws = (
            _checked_passes(state.get("passes", ())),
            _checked_draws(state.get("draws", ())),
        )
        super().load_state_dict(_as_ours(state, self._accepted))
        self.history, self.passes, self.draws = history, passes, draws

    def __repr__(self) -> str:
        """Writes the history as a composition, and an upper bound of epsilon where it is fast."""
        return glance(type(self).__name__, lambda: self.composition)

    def __len__(self) -> int:
        """Counts the steps so far."""
        counted = [*self.history, *self.passes, *self.draws]
        return sum(int(steps) for *_, steps in counted)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name by which Opacus knows this accountant."""
        return "tight"


# the types of which == compares values: a tensor or an array may change, or have several entries
_NUMBERS = (float, int)


def _add(entries: list[Any], *kind: float) -> Any:
    """Counts one step of a kind at the end of a list, and returns its entry (\\*kind, steps)."""
    # one assignment: an interruption between two statements would lose the steps counted before
    if entries and tuple(entries[-1][:-1]) == kind:
        entries[-1] = (*kind, entries[-1][-1] + 1)  # guard: each-step-counts
    else:
        entries.append((*kind, 1))
    return entries[-1]


def _one_batch(optimizer: DPOptimizer) -> None:
    """Refuses a step that is no sum over one batch with noise."""
    if isinstance(optimizer, AdaClipDPOptimizer):
        raise ParameterError(
            "clipping must be 'flat' or 'per_layer': 'adaptive' divides by the size of the "
            "sample, which no noise hides"
        )
    # Batches of one pass have no record in common, but nobody sees here that it is one pass, and
    # not one batch twice: a loader with workers, or a list of its batches, has drawn ahead.
    accumulated = optimizer.accumulated_iterations
    if accumulated != 1:
        raise refuse(
            "accumulated_iterations",
            "be 1: a record may be in several samples of one step",
            accumulated,
        )


def _no_batch() -> ParameterError:
    """Makes the refusal of a step that no batch of the private loader was drawn for."""
    return ParameterError(
        "each step must be made with a new batch of the loader that make_private has returned: "
        f"no batch was drawn for this one ({_PAGE})"
    )


def _entries(name: str, given: object, fields: str) -> list[Any]:
    """Returns the entries of a list of tuples with these fields; refuses anything else."""
    if not isinstance(given, (tuple, list)):
        raise refuse(name, "be a list", given)
    for i, entry in enumerate(given):
        if not isinstance(entry, (tuple, list)) or len(entry) != len(fields.split(", ")):
            raise refuse(f"{name}[{i}]", f"be ({fields})", entry)
    return list(given)


def _as_ours(state: dict[str, Any], accepted: frozenset[str]) -> dict[str, Any]:
    """Returns a state as one of ``tight``; refuses that of an accountant that is not accepted."""
    ours = TightAccountant.mechanism()
    written_by = state.get("mechanism", ours)
    if written_by == ours:
        return state
    if written_by not in accepted:  # guard: other-states-are-declared
        raise ParameterError(
            f"state_dict of {written_by} cannot be loaded into an accountant with mechanism "
            f"{ours}: if each of its steps was a Poisson sample at the rate in its history, "
            f"say so with accountant.accept_history_of({written_by!r})"
        )
    return {**state, "mechanism": ours}


def _checked(history: object) -> list[tuple[float, float, int]]:
    """Returns the entries of a history as plain numbers; refuses any other history."""
    entries = _entries("history", history, "noise multiplier, sample rate, steps")
    return [
        (
            non_negative(**{f"history[{i}][0]": sigma}),
            probability(**{f"history[{i}][1]": rate}),
            count(**{f"history[{i}][2]": steps}),
        )
        for i, (sigma, rate, steps) in enumerate(entries)
    ]


def _checked_passes(passes: object) -> list[tuple[float, int, int, int]]:
    """Returns the entries of a list of passes as plain numbers; refuses any other list."""
    entries = _entries("passes", passes, "noise multiplier, batches, passes, steps")
    return [
        (
            non_negative(**{f"passes[{i}][0]": sigma}),
            positive_count(**{f"passes[{i}][1]": batches}),
            count(**{f"passes[{i}][2]": often}),
            count(**{f"passes[{i}][3]": steps}),
        )
        for i, (sigma, batches, often, steps) in enumerate(entries)
    ]


def _checked_draws(draws: object) -> list[tuple[float, int, int, int]]:
    """Returns the entries of a list of draws as plain numbers; refuses any other list."""
    entries = _entries("draws", draws, "noise multiplier, batch, of, steps")
    return [
        (
            non_negative(**{f"draws[{i}][0]": sigma}),
            positive_count(**{f"draws[{i}][1]": batch}),
            positive_count(**{f"draws[{i}][2]": of}),
            count(**{f"draws[{i}][3]": steps}),
        )
        for i, (sigma, batch, of, steps) in enumerate(entries)
    ]


# --------------------------------------------------------------------------------------- engine


def _counts_tightly(engine: Any) -> bool:
    """Says whether the accountant of an engine is a ``tight`` one."""
    return bool(engine.accountant.mechanism() == TightAccountant.mechanism())


def _hand_over_loaders() -> None:
    """Makes ``PrivacyEngine`` hand the loader to an accountant that is ``tight``.

    Engines with other accountants are as they were. Opacus hands its accountants a sample rate
    alone, so that there is no other place from which an accountant could see a loader.
    """
    # loaded twice, this module wraps the original once
    plain = getattr(PrivacyEngine.make_private, "plain", PrivacyEngine.make_private)
    by_target = getattr(
        PrivacyEngine.make_private_with_epsilon, "plain", PrivacyEngine.make_private_with_epsilon
    )

    @functools.wraps(plain)
    def make_private(self: Any, **given: Any) -> Any:
        if _counts_tightly(self):
            if not given.get("poisson_sampling", True):
                self.accountant.hook_for(given["data_loader"])  # refused before anything is changed
            else:
                self.accountant._same_relation(replaced=False)
        made = plain(self, **given)
        if _counts_tightly(self):
            made[1].attach_step_hook(self.accountant.hook_for(made[-1]))
        return made

    @functools.wraps(by_target)
    def make_private_with_epsilon(self: Any, **given: Any) -> Any:
        if not _counts_tightly(self) or given.get("poisson_sampling", True):
            return by_target(self, **given)
        rest = {key: value for key, value in given.items() if not key.startswith("target_")}
        epochs = positive_count(epochs=rest.pop("epochs"))
        loader = given["data_loader"]
        found = calibrate(
            lambda sigma: _epoch(loader, sigma) * epochs,
            epsilon=given["target_epsilon"],
            delta=given["target_delta"],
        )
        return self.make_private(noise_multiplier=found.value, **rest)

    for wrapped, original in ((make_private, plain), (make_private_with_epsilon, by_target)):
        wrapped.plain = original  # type: ignore[attr-defined]
        setattr(PrivacyEngine, original.__name__, wrapped)


# with force, this module may be loaded twice: the second accountant replaces the first
register_accountant("tight", TightAccountant, force=True)
_hand_over_loaders()
