"""Packages that take our rho for theirs run the plan that it was computed for.

dpmm, SmartNoise and OpenDP's extra ``mbi`` need an environment of their own each, with nothing of
this repository: ``make synthesizers`` makes them, and runs this file in each. The scripts of mbi's
repository are asked where MBI_SCRIPTS names their folder, and mbi is there. Elsewhere all are
skipped.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytestmark = [
    pytest.mark.needs,
    pytest.mark.filterwarnings("ignore"),  # of theirs
]
RHO = 0.02816
CELLS = {"a": 2, "b": 3, "c": 4}


def rows(n: int = 2000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.integers(0, cells, n) for name, cells in CELLS.items()}


def spent(sigmas: Any) -> float:
    """The share of rho that Gaussian noise on counts of one row costs."""
    return sum(0.5 / sigma**2 for sigma in sigmas) / RHO


def test_dpmm_runs_mst_with_a_rho_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    mst = pytest.importorskip("dpmm.models.mst", reason="dpmm has an environment of its own")
    import pandas as pd

    mechanism = importlib.import_module("dpmm.models.base.mechanisms.mechanism")
    drawn: list[float] = []
    noise = mechanism.gaussian_noise

    def kept(sigma: float, size: Any) -> Any:
        drawn.append(sigma)
        return noise(sigma=sigma, size=size)

    monkeypatch.setattr(mechanism, "gaussian_noise", kept)
    chosen: list[float] = []
    given = mst.MST.exponential_mechanism

    def choose(self: Any, q: Any, eps: float, sensitivity: float) -> Any:
        chosen.append(eps / sensitivity)
        return given(self, q, eps, sensitivity)

    monkeypatch.setattr(mst.MST, "exponential_mechanism", choose)
    model = mst.MST(epsilon=1.0, delta=1e-6, domain=CELLS, compress=False, n_jobs=1, n_iters=50)
    assert model.rho == pytest.approx(0.024356, rel=1e-5)
    model.rho, model.sigma = RHO, (3 / (2 * RHO)) ** 0.5
    model.fit(pd.DataFrame(rows()))
    assert spent(drawn[:3]) == pytest.approx(1 / 3)
    # of two pairs each has the noise of one of three
    assert spent(drawn[3:]) == pytest.approx(2 / 9)
    assert sum(eps**2 / 8 for eps in chosen) == pytest.approx(RHO / 3)


def test_dpmm_runs_aim_with_a_rho_that_it_is_given() -> None:
    aim = pytest.importorskip("dpmm.models.aim", reason="dpmm has an environment of its own")
    import pandas as pd

    model = aim.AIM(epsilon=1.0, delta=1e-6, domain=CELLS, n_jobs=1, n_iters=50)
    model.rho = RHO
    model.fit(pd.DataFrame(rows()))
    sigmas = [sigma for _, _, sigma, _ in model.measures]
    # 48 units: .9 for each column, and nine tenths of all others
    assert spent(sigmas[:3]) == pytest.approx(2.7 / 48)
    assert spent(sigmas[3:]) == pytest.approx(0.9 * (48 - 2.7) / 48)


def kept(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The scale of each Gaussian noise that a module draws from now on."""
    drawn: list[float] = []
    noise: Callable[..., Any] = module.gaussian_noise

    def keep(sigma: float, size: Any = None) -> Any:
        drawn.append(sigma)
        return noise(sigma, size)

    monkeypatch.setattr(module, "gaussian_noise", keep)
    return drawn


def smartnoise_rows() -> tuple[Any, Any]:
    """Rows, and the cells of their columns as SmartNoise wants to have them."""
    import pandas as pd

    table = importlib.import_module("snsynth.transform.table").TableTransformer
    label = importlib.import_module("snsynth.transform").LabelTransformer
    return pd.DataFrame(rows(500)), table([label(nullable=False) for _ in CELLS])


def test_smartnoise_runs_mst_with_a_rho_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    mst = pytest.importorskip("snsynth.mst.mst", reason="SmartNoise has an environment of its own")
    assert mst.cdp_rho(1.0, 1e-6) == pytest.approx(0.024356, rel=1e-5)
    drawn, chosen = kept(mst, monkeypatch), []
    given = mst.MSTSynthesizer.exponential_mechanism

    def choose(self: Any, q: Any, eps: float, sensitivity: float) -> Any:
        chosen.append(eps / sensitivity)
        return given(self, q, eps, sensitivity)

    monkeypatch.setattr(mst.MSTSynthesizer, "exponential_mechanism", choose)
    monkeypatch.setattr(mst, "cdp_rho", lambda epsilon, delta: RHO)
    frame, cells = smartnoise_rows()
    model = mst.MSTSynthesizer(epsilon=1.0, delta=1e-6)
    model.fit(frame, transformer=cells)
    assert spent(drawn[:3]) == pytest.approx(1 / 3)
    assert spent(drawn[3:]) == pytest.approx(1 / 3)
    assert sum(eps**2 / 8 for eps in chosen) == pytest.approx(RHO / 3)
    # what the page says of it: the number of private rows is told, with no noise
    assert len(model.sample()) == len(frame)


def test_smartnoise_runs_aim_with_a_rho_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    aim = pytest.importorskip("snsynth.aim.aim", reason="SmartNoise has an environment of its own")
    drawn = kept(aim, monkeypatch)
    monkeypatch.setattr(aim, "cdp_rho", lambda epsilon, delta: RHO)
    frame, cells = smartnoise_rows()
    model = aim.AIMSynthesizer(epsilon=1.0, delta=1e-6, rounds=12)
    model.fit(frame, transformer=cells)
    assert spent(drawn[:3]) == pytest.approx(2.7 / 12)
    assert spent(drawn[3:]) == pytest.approx(0.9 * (12 - 2.7) / 12)
    assert len(model.sample()) == len(frame)


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script of mbi's repository; how models are fitted differs between versions of mbi."""
    folder = os.environ.get("MBI_SCRIPTS")
    if not folder:
        pytest.skip("MBI_SCRIPTS is the folder with mbi's scripts, which its wheel lacks")
    monkeypatch.syspath_prepend(folder)
    module, own = importlib.import_module(name), importlib.import_module("mbi").estimation

    def fitted(domain: Any, measured: Any, iters: int, potentials: Any = None) -> Any:
        if hasattr(own, "MirrorDescent"):
            return own.MirrorDescent().estimate(domain, measured, iters=100)
        return own.mirror_descent(domain, measured, iters=100)

    estimator = SimpleNamespace(estimate=fitted)
    fits = SimpleNamespace(mirror_descent=fitted, MirrorDescent=lambda: estimator)
    monkeypatch.setattr(module, "estimation", fits)
    return module


def mbi_rows() -> Any:
    mbi = importlib.import_module("mbi")
    return mbi.Dataset(rows(500), mbi.Domain(list(CELLS), list(CELLS.values())))


def test_mbi_runs_mst_with_a_rho_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    mst = script("mst", monkeypatch)
    assert mst.cdp_rho(1.0, 1e-6) == pytest.approx(0.024356, rel=1e-4)
    monkeypatch.setattr(mst, "cdp_rho", lambda epsilon, delta: RHO)
    drawn, given = [], mst.measure

    def measure(data: Any, cliques: Any, sigma: float, weights: Any = None) -> Any:
        found = given(data, cliques, sigma, weights)
        drawn.append([one.stddev for one in found])
        return found

    monkeypatch.setattr(mst, "measure", measure)
    mst.MST(mbi_rows(), 1.0, 1e-6)
    assert [spent(sigmas) for sigmas in drawn] == pytest.approx([1 / 3, 1 / 3])


def test_mbi_runs_aim_with_a_rho_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = script("aim", monkeypatch).AIM(1.0, 1e-6, rounds=12)
    drawn, given = [], mechanism.gaussian_noise

    def noise(sigma: float, size: Any) -> Any:
        drawn.append(sigma)
        return given(sigma, size)

    mechanism.rho, mechanism.gaussian_noise = RHO, noise
    mechanism.run(mbi_rows(), [(("a", "b"), 1.0), (("b", "c"), 1.0)])
    assert spent(drawn[:3]) == pytest.approx(2.7 / 12)
    assert spent(drawn[3:]) == pytest.approx(0.9 * (12 - 2.7) / 12)


@pytest.mark.parametrize(("algorithm", "one", "two"), [("MST", 0.5, 0.45), ("Fixed", 0.0, 1.0)])
def test_opendp_runs_the_plan_of_its_shares(algorithm: str, one: float, two: float) -> None:
    pytest.importorskip("mbi", reason="OpenDP's extra mbi has an environment of its own")
    if not importlib.metadata.version("mbi").startswith("1."):
        pytest.skip("OpenDP's extra mbi needs mbi 1: it has an environment of its own")
    pl = pytest.importorskip("polars", reason="mbi 1 is there for SmartNoise alone")

    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    given = {"MST": {}, "Fixed": {"queries": [dp.mbi.Count(("a", "b"))], "oneway": "unkeyed"}}
    context = dp.Context.compositor(
        data=pl.LazyFrame(rows()),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=RHO),
    )
    table = context.query(rho=RHO).contingency_table(
        keys={name: list(range(cells)) for name, cells in CELLS.items()},
        algorithm=getattr(dp.mbi, algorithm)(**given[algorithm]),
    )
    measured = table.release().marginals.flatten()
    assert spent(m.stddev for m in measured if len(m.clique) == 1) == pytest.approx(one)
    assert spent(m.stddev for m in measured if len(m.clique) == 2) == pytest.approx(two)
