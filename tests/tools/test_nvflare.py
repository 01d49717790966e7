"""The statements about NVFlare's filters on docs/how-to/use-with-nvflare.md, and what they rest on.

The law of the selection is computed here from its description, for few numbers: that the law
costs at most epsilon is tested without NVFlare, and that NVFlare has this law, with it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tightbudget as tb
from docs import examples

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-with-nvflare.md"

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
    # accepted so far: probability at each threshold
    before: dict[frozenset[int], Any] = {frozenset(): np.ones_like(u)}
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
            ended = float(np.mean(after.pop(accepted)))
            for chosen, share in drawn(accepted, c, replace).items():
                law[passes, chosen] = law.get((passes, chosen), 0) + ended * share
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
        # in two arrays, from which the filter draws in turn
        arrays = {"v": np.array(sizes[:1]), "w": np.array([-sizes[1], sizes[2]])}
        update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, arrays)
        sent = noisy.process_dxo(update, shareable, context)
        passes = sent.get_meta_prop("svt_privacy_budget")["acceptance_passes"]
        numbers = np.concatenate([sent.data["v"], sent.data["w"]])
        seen[passes, frozenset(np.flatnonzero(numbers).tolist())] += 1
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

    refuses = type("Refuses", (filters.DXOFilter,), {"process_dxo": lambda *_: None})
    kinds = [dxo.DataKind.WEIGHT_DIFF]
    update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, {"w": np.array([0.5])})
    sent = refuses(kinds, kinds).process(update.to_shareable(), context)
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


# ------------------------------------------------------------------ the recipe on the page


TEXT = PAGE.read_text(encoding="utf-8")
RECIPE = next(b[2] for b in examples.BLOCK.finditer(TEXT) if "class Paid" in b[2])


@pytest.fixture
def site(tmp_path: Path) -> Callable[[], Any]:
    """Makes the page's filter as a new process would: on the same ledger, for two updates."""
    pytest.importorskip("nvflare")
    names: dict[str, Any] = {}
    exec(compile(RECIPE, str(PAGE), "exec"), names)
    # ten numbers, of which one is selected: an update costs rho (1/4 + 1/4) / 2
    return lambda: names["PaidSVT"](
        ledger=f"sqlite:///{tmp_path}/budget.db",
        budget="site-1",
        rho=0.5,
        steps=10,
        fraction=0.1,
        epsilon=0.5,
        noise_var=0.5,
        gamma=1.0,
        tau=0.5,
    )


def sent_by(paid: Any, data: dict[str, Any], kind: str = "WEIGHT_DIFF", **meta: Any) -> Any:
    dxo = pytest.importorskip("nvflare.apis.dxo")
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()
    return dxo.from_shareable(paid.process(dxo.DXO(kind, data, meta=meta).to_shareable(), context))


@pytest.mark.needs
def test_the_ledger_ends_the_updates_across_runs(site: Callable[[], Any]) -> None:
    events = pytest.importorskip("nvflare.apis.event_type").EventType
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()
    for _ in range(2):
        paid = site()
        paid.handle_event(events.START_RUN, context)
        sent_by(paid, {"w": np.ones(10)})
        paid.handle_event(events.END_RUN, context)
    again = site()
    again.handle_event(events.START_RUN, context)
    with pytest.raises(tb.BudgetExceeded, match=r"requested rho 0\.25\d*, .* left rho 0\.0"):
        sent_by(again, {"w": np.ones(10)})
    assert again.get_privacy_spent() == 0


@pytest.mark.needs
def test_an_update_that_fails_after_the_reservation_is_held(
    site: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = site()

    def crash(*_: object) -> None:
        raise RuntimeError("the machine goes down")

    with monkeypatch.context() as broken:
        broken.setattr(paid, "process_dxo", crash)
        with pytest.raises(RuntimeError, match="goes down"):
            sent_by(paid, {"w": np.ones(10)})
    sent_by(site(), {"w": np.ones(10)})
    with pytest.raises(tb.BudgetExceeded, match=r"held rho 0\.25"):
        sent_by(site(), {"w": np.ones(10)})


@pytest.mark.needs
@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("WEIGHTS", {"w": np.ones(10)}, "WEIGHTS would go out as it is"),
        ("METRICS", {"loss": 0.7}, "METRICS would go out as it is"),
        ("WEIGHT_DIFF", {"w": np.ones(9), "t": np.float64(2)}, r"scalars .* as they are: \['t'\]"),
    ],
    ids=["weights", "metrics", "scalar"],
)
def test_the_recipe_refuses_what_would_go_out_without_noise(
    site: Callable[[], Any], kind: str, data: dict[str, Any], message: str
) -> None:
    paid = site()
    with pytest.raises(ValueError, match=message):
        sent_by(paid, data, kind)
    assert paid.budget.left == site().budget.left
    assert not paid.budget.holds()


@pytest.mark.needs
def test_an_error_goes_out_without_what_came_with_it(site: Callable[[], Any]) -> None:
    api = pytest.importorskip("nvflare.apis.shareable")
    context = pytest.importorskip("nvflare.apis.fl_context").FLContext()
    failed = api.make_reply("EXECUTION_EXCEPTION")
    failed["trained"] = np.ones(10)
    answer = site().process(failed, context)
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert "trained" not in answer


@pytest.mark.needs
def test_an_update_goes_out_with_public_meta_data_only(site: Callable[[], Any]) -> None:
    """NaN does not hold up the selection, and neither the number of records nor a loss is sent."""
    data = {"w": np.array([math.nan] * 10)}
    meta = sent_by(site(), data, NUM_STEPS_CURRENT_ROUND=37, loss=0.7).meta
    assert meta["NUM_STEPS_CURRENT_ROUND"] == 10
    assert set(meta) - {"NUM_STEPS_CURRENT_ROUND", "filter_history"} == {
        "svt_privacy_budget",
        "svt_privacy_accountant",
    }


@pytest.mark.needs
def test_the_sites_own_policy_has_the_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVFlare reads the JSON of the page, and finds the recipe as a module beside it."""
    conf = pytest.importorskip("nvflare.private.fed.app.fl_conf")
    found = re.search(r"^```json\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert found
    policy = tmp_path / "privacy.json"
    policy.write_text(found[1].replace("/var/lib/site-1", str(tmp_path)), encoding="utf-8")
    (tmp_path / "paid.py").write_text(RECIPE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    workspace = SimpleNamespace(get_site_privacy_file_path=lambda: str(policy))
    scope = conf.create_privacy_manager(workspace, names_only=False).get_scope(None)
    (paid,) = scope.task_result_filters["out"]
    sent = sent_by(paid, {"w": np.ones(50)})
    assert np.count_nonzero(sent.data["w"]) == 5
    assert (tmp_path / "budget.db").is_file()
