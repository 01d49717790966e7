"""The statements about NVFlare's filters on docs/how-to/use-with-nvflare.md, and what they rest on.

The law of the selection is computed here from its description, for few numbers: that the law
costs at most epsilon is tested without NVFlare, and that NVFlare has this law, with it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

# A selection that is seen: after how many comparisons of all numbers it ended, and which numbers.
Seen = tuple[int, frozenset[int]]
EPSILON, TAU, PASSES = 2.0, 0.4, 8


def shares(c: int) -> tuple[float, float]:
    """Returns the parts of EPSILON for the threshold and the comparisons, NVFlare's default."""
    ratio = (2 * c) ** (2 / 3)
    return EPSILON / (1 + ratio), EPSILON * ratio / (1 + ratio)


def survival(x: Any, scale: float) -> Any:
    """Returns P(Laplace(scale) >= x)."""
    tail = np.exp(-np.abs(x) / scale) / 2
    return np.where(x >= 0, tail, 1 - tail)


def drawn(accepted: frozenset[int], c: int, replace: bool) -> dict[frozenset[int], float]:
    """Returns the probabilities of the different numbers in c draws from the accepted ones."""
    if not replace:
        sets = [frozenset(chosen) for chosen in itertools.combinations(sorted(accepted), c)]
        return dict.fromkeys(sets, 1 / len(sets))
    draws = Counter(frozenset(one) for one in itertools.product(sorted(accepted), repeat=c))
    return {chosen: times / len(accepted) ** c for chosen, times in draws.items()}


def selection(sizes: tuple[float, ...], c: int, replace: bool) -> dict[Seen, float]:
    """Returns the law of the selection from numbers of these sizes, in [0, 1] (gamma is 1).

    The integral over the threshold is a sum over 2,001 points of its inverse distribution: each
    has the same mass, so that the sum of positive terms is right to about a part in a thousand.
    """
    first, second = shares(c)
    u = (np.arange(2_001) + 0.5) / 2_001
    threshold = TAU - np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5)) / first
    accept = [survival(threshold - size, 2 * c / second) for size in sizes]
    everything = frozenset(range(len(sizes)))
    before = {frozenset[int](): np.ones_like(u)}  # accepted so far: probability at each threshold
    law: dict[Seen, float] = {}
    for passes in range(1, PASSES + 1):
        after: dict[frozenset[int], Any] = {}
        for old, mass in before.items():
            rest = sorted(everything - old)
            for bits in itertools.product((False, True), repeat=len(rest)):
                part = mass
                for number, bit in zip(rest, bits, strict=True):
                    part = part * (accept[number] if bit else 1 - accept[number])
                new = old | {number for number, bit in zip(rest, bits, strict=True) if bit}
                after[new] = after.get(new, 0) + part
        for accepted in [accepted for accepted in after if len(accepted) >= c]:
            mass = float(np.mean(after.pop(accepted)))
            for chosen, share in drawn(accepted, c, replace).items():
                law[passes, chosen] = law.get((passes, chosen), 0) + mass * share
        before = after
    return law


CASES = [(c, replace) for c in (1, 2, 3) for replace in (False, True)]


@pytest.mark.parametrize(("c", "replace"), CASES)
def test_the_selection_costs_at_most_epsilon(c: int, replace: bool) -> None:
    """It holds for the numbers and the passes together, between all corners of the cube."""
    corners = list(itertools.product((0.0, 1.0), repeat=3))
    laws = [selection(corner, c, replace) for corner in corners]
    worst = max(
        math.log(one[seen] / other[seen])
        for one, other in itertools.permutations(laws, 2)
        for seen in one
    )
    # The sum over thresholds is right to about a part in a thousand.
    assert worst <= EPSILON + 0.005
    assert worst >= 0.2 * EPSILON


def test_the_law_notices_comparisons_with_less_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above has teeth: a fourth of the noise makes the selection cost more."""
    honest = shares(1)
    monkeypatch.setitem(globals(), "shares", lambda c: (honest[0], 4 * honest[1]))
    one, other = (selection(sizes, 1, False) for sizes in ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0)))
    assert max(math.log(one[seen] / other[seen]) for seen in one) > EPSILON


# ------------------------------------------------------------------------- beside NVFlare


@pytest.mark.needs
@pytest.mark.parametrize(("c", "replace"), CASES)
def test_the_filter_selects_by_that_law(c: int, replace: bool) -> None:
    svt = pytest.importorskip("nvflare.app_common.filters.svt_privacy")
    dxo = pytest.importorskip("nvflare.apis.dxo")
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()
    shareable = pytest.importorskip("nvflare.apis.shareable").Shareable()
    sizes, runs = (1.0, 0.25, 0.0), 5_000
    noisy = svt.SVTPrivacy(
        fraction=c / 3, epsilon=EPSILON, noise_var=0.5, gamma=1.0, tau=TAU, replace=replace
    )
    np.random.seed(19)  # noqa: NPY002 - the filter draws from this source
    seen: Counter[Seen] = Counter()
    for _ in range(runs):
        update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, {"w": np.array(sizes) * [1, -1, 1]})
        sent = noisy.process_dxo(update, shareable, context)
        passes = sent.get_meta_prop("svt_privacy_budget")["acceptance_passes"]
        seen[passes, frozenset(np.flatnonzero(sent.data["w"]).tolist())] += 1
    law = selection(sizes, c, replace)
    for outcome, probability in law.items():
        spread = math.sqrt(runs * probability * (1 - probability))
        # five standard deviations, and the error of the law
        assert abs(seen[outcome] - runs * probability) <= 5 * spread + 1e-3 * runs, outcome


@pytest.mark.needs
def test_an_update_goes_out_as_it_was_where_a_filter_returns_none() -> None:
    """So a filter that refuses has to raise: the page says it, and the recipe does it."""
    dxo = pytest.importorskip("nvflare.apis.dxo")
    filters = pytest.importorskip("nvflare.apis.dxo_filter")
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()

    class Refuses(filters.DXOFilter):
        def process_dxo(self, dxo: object, shareable: object, fl_ctx: object) -> None:
            return None

    kinds = [dxo.DataKind.WEIGHT_DIFF]
    update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, {"w": np.array([0.5])})
    sent = Refuses(kinds, kinds).process(update.to_shareable(), context)
    assert dxo.from_shareable(sent).data["w"][0] == 0.5


@pytest.mark.needs
def test_a_new_run_sets_the_filters_own_sum_to_zero() -> None:
    svt = pytest.importorskip("nvflare.app_common.filters.svt_privacy")
    dxo = pytest.importorskip("nvflare.apis.dxo")
    events = pytest.importorskip("nvflare.apis.event_type").EventType
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()
    noisy = svt.SVTPrivacy(fraction=1.0, gamma=1.0)
    update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, {"w": np.ones(5)})
    noisy.process(update.to_shareable(), context)
    assert noisy.get_privacy_spent() == pytest.approx(0.1 + 5 * 0.1)
    noisy.handle_event(events.END_RUN, context)
    assert noisy.get_privacy_spent() > 0
    noisy.handle_event(events.START_RUN, context)
    assert noisy.get_privacy_spent() == 0


@pytest.mark.needs
@pytest.mark.parametrize("release_noise", [0.1, 2.0])
def test_noise_var_is_the_epsilon_of_each_number(release_noise: float) -> None:
    """The noise of a selected number has the mean size 2 gamma / noise_var."""
    svt = pytest.importorskip("nvflare.app_common.filters.svt_privacy")
    dxo = pytest.importorskip("nvflare.apis.dxo")
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()
    np.random.seed(19)  # noqa: NPY002
    noisy = svt.SVTPrivacy(fraction=1.0, noise_var=release_noise, gamma=0.5, replace=False)
    update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, {"w": np.zeros(20_000)})
    sent = dxo.from_shareable(noisy.process(update.to_shareable(), context)).data["w"]
    assert np.mean(np.abs(sent)) == pytest.approx(2 * 0.5 / release_noise, rel=0.05)
