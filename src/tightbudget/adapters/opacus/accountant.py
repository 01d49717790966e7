"""The accountant ``tight``, which counts the steps of a loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opacus.accountants import IAccountant
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer

from tightbudget.adapters.opacus.loaders import (
    PAGE,
    POISSON,
    batches_of_pass,
    one_worker,
    replaced,
    watched,
)
from tightbudget.adapters.opacus.states import checked, checked_draws, checked_passes
from tightbudget.adapters.opacus.steps import dp_sgd_batch, dp_sgd_pass, dp_sgd_step
from tightbudget.errors import ParameterError, RelationError
from tightbudget.mechanisms.composition import Composition
from tightbudget.mechanisms.glance import glance
from tightbudget.mechanisms.neighbouring import Neighbouring
from tightbudget.numerics.bounds import Bounds
from tightbudget.numerics.validate import refuse
from tightbudget.release.stopping import StoppingCallback

# the types of which == compares values: a tensor or an array may change, or have several entries
_NUMBERS = (float, int)


class TightAccountant(IAccountant):  # type: ignore[misc]
    """An accountant of Opacus with certified bounds: ``PrivacyEngine(accountant="tight")``.

    Guarantee: :meth:`bounds` contains the exact epsilon of :attr:`composition`, the larger one of
    both directions, if the numbers of steps do not depend on the data. The composition is the run
    itself for Poisson samples. For passes over the data it dominates the run, and its lower bound
    is one for the run if the data is shuffled and no record left out.

    Attributes:
        history: (noise multiplier, sample rate, steps) of Poisson samples, in order, as in Opacus's
            accountants.
        passes: (noise multiplier, batches, smaller, passes, steps) of loaders that cut the data in
            batches, in order; see :func:`dp_sgd_pass`.
        draws: (noise multiplier, batch, of, steps) of loaders that draw batches with replacement,
            in order; see :func:`dp_sgd_batch`.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self.passes: list[tuple[float, int, int, int, int]] = []
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
        passes = checked_passes(self.passes)
        relation = Neighbouring.ZERO_OUT if passes else None
        return Composition(
            (
                *((dp_sgd_step(s, q, relation=relation), k) for s, q, k in checked(self.history)),
                *((dp_sgd_pass(s, t, less), k) for s, t, less, k, _ in passes),
                *((dp_sgd_batch(s, b, n), k) for s, b, n, k in checked_draws(self.draws)),
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
        sampler = watched(loader)
        if isinstance(sampler, POISSON):
            same_relation(self, replaced=False)
            return self._sample_hook(
                sampler,
                "sample_rate",
                lambda: sampler.sample_rate,
                lambda noise, rate: self.step(noise_multiplier=noise, sample_rate=rate),
            )
        one_worker()
        if replaced(loader):
            same_relation(self, replaced=True)
            return self._sample_hook(
                sampler, "(batch_size, records)", lambda: replaced(loader), self._draw
            )
        same_relation(self, replaced=False)
        return self._pass_hook(loader, sampler, batches_of_pass(loader))

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

    def _pass_hook(
        self, loader: Any, sampler: Any, batches: tuple[int, int]
    ) -> Callable[[DPOptimizer], None]:
        """Makes the hook for a loader that cuts the data into batches.

        Args:
            loader: the loader, whose order and batch size are read again in each pass.
            sampler: the batch sampler of the loader, which counts.
            batches: the two numbers that :func:`batches_of_pass` has returned for the loader.
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
            if fresh and batches_of_pass(loader) != batches:  # guard: loader-cuts-as-before
                must = f"stay {batches}, as when make_private was called"
                now = batches_of_pass(loader)
                raise refuse("the unknown batches of a pass, and the smaller ones", must, now)
            steps = 0 if fresh else steps
            # a checkpoint that is loaded within a pass brings other passes, without this one
            lost = self.passes is not counted_in  # guard: pass-outlives-a-checkpoint
            if fresh or lost or self._last_pass(sigma, batches) is None:
                self._begin_pass(sigma, batches)
                this, noise, counted_in = sampler.begun, sigma, self.passes
            steps += 1
            where = self._last_pass(sigma, batches)
            assert where is not None
            *_, passes, counted = self.passes[where]
            self.passes[where] = (sigma, *batches, passes, counted + 1)

        return hook

    def _last_pass(self, noise_multiplier: float, batches: tuple[int, int]) -> int | None:
        """Returns the index of the last entry of :attr:`passes` with these numbers, if any."""
        for i in reversed(range(len(self.passes))):
            if tuple(self.passes[i][:3]) == (noise_multiplier, *batches):
                return i
        return None

    def _begin_pass(self, noise_multiplier: float, batches: tuple[int, int]) -> None:
        """Counts one pass, of which no step was made yet."""
        mechanism = dp_sgd_pass(noise_multiplier, *batches)
        if self._stopping is not None:
            self._stopping.step(mechanism)
        kind, passes = (noise_multiplier, *batches), self.passes
        if passes and tuple(passes[-1][:3]) == kind:
            *_, often, steps = passes[-1]
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
        history = checked(state.get("history", ()))
        passes, draws = (
            checked_passes(state.get("passes", ())),
            checked_draws(state.get("draws", ())),
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


def _add(entries: list[Any], *kind: float) -> Any:
    """Counts one step of a kind at the end of a list, and returns its entry (\\*kind, steps)."""
    # one assignment: an interruption between two statements would lose the steps counted before
    if entries and tuple(entries[-1][:-1]) == kind:
        entries[-1] = (*kind, entries[-1][-1] + 1)  # guard: each-step-counts
    else:
        entries.append((*kind, 1))
    return entries[-1]


def same_relation(accountant: TightAccountant, *, replaced: bool) -> None:
    """Refuses a loader whose steps do not compose with those that were counted.

    Args:
        accountant: which counted them.
        replaced: whether the loader draws with replacement, so that a neighbour has another
            record in the place of one.
    """
    if accountant.history or accountant.passes if replaced else accountant.draws:
        ways = "another record in its place", "a record that is there or not"
        raise RelationError(
            f"the data_loader's steps are for {ways[not replaced]}, and the steps so far for "
            f"{ways[replaced]}: they need an engine of their own ({PAGE})"
        )


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
        f"no batch was drawn for this one ({PAGE})"
    )


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
