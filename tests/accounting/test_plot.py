from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import tightbudget as tb
from tightbudget.accounting.plot import save_plot, save_schedule
from tightbudget.drawing import draw_intervals

DELTA_CURVE = tb.Curve.of_deltas(
    [0.0, 1.0, 2.0], [tb.Bounds(0.3, 0.4), tb.Bounds(0.1, 0.2), tb.Bounds(0.0, 0.05)]
)
EPSILON_CURVE = tb.Curve.of_epsilons(
    [1e-2, 1e-5, 0.0], [tb.Bounds(1.0, 1.1), tb.Bounds(2.0, 2.1), tb.Bounds(3.0, math.inf)]
)


def drawn(curve: tb.Curve, label: str | None = None):
    ax = curve.plot(ax=Figure().subplots(), label=label)
    lower, upper = ax.lines
    return ax, np.array(lower.get_data()), np.array(upper.get_data())[:, upper.get_markevery()]


def test_delta_over_epsilon_shows_both_ends() -> None:
    ax, lower, upper = drawn(DELTA_CURVE)
    np.testing.assert_array_equal(lower, [[0, 1, 2], [0.3, 0.1, 0.0]])
    np.testing.assert_array_equal(upper, [[0, 1, 2], [0.4, 0.2, 0.05]])
    assert len(ax.collections) == 1  # the band
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "privacy loss ε (nats)"
    assert ax.get_ylabel() == "δ(ε)"


def test_epsilon_over_delta_is_the_same_picture_and_infinity_is_off_it() -> None:
    _, lower, upper = drawn(EPSILON_CURVE)
    np.testing.assert_array_equal(lower, [[1.0, 2.0, 3.0], [1e-2, 1e-5, 0.0]])
    np.testing.assert_array_equal(upper, [[1.1, 2.1, math.nan], [1e-2, 1e-5, 0.0]])


def test_the_legend_names_the_ends_and_how_far_apart_they_are() -> None:
    curve = tb.Curve.of_epsilons([1e-2, 1e-3], [tb.Bounds(0.9999, 1.0), tb.Bounds(1.9995, 2.0)])
    for label, before in ((None, ""), ("DP-SGD", "DP-SGD: ")):
        ax, _, _ = drawn(curve, label)
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [
            f"{before}certified lower bound, at the points",
            f"{before}certified upper bound, also between points\n(ε of both within 0.03 %)",
        ]


RUN = tb.Gaussian(2.0) * 30
WHOLE = {
    "epsilon": RUN.curve(epsilons=[0.0, 6.0, 20.0, 12.0]),
    "delta": RUN.curve(deltas=[0.5, 1e-3, 1e-9]),
    "apart": (tb.Gaussian(1.0).shuffled(10) * 2).curve(deltas=[0.1, 1e-9]),
    "no loss above 1": tb.Laplace(1.0).curve(epsilons=[0.0, 0.9, 1.5]),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", WHOLE)
def test_the_line_of_the_upper_bounds_is_above_delta_also_between_points(name: str) -> None:
    exact = {"apart": tb.Gaussian(1.0).shuffled(10) * 2, "no loss above 1": tb.Laplace(1.0)}
    line = WHOLE[name].plot(ax=Figure().subplots()).lines[1]
    epsilon, delta = np.array(line.get_data())
    kept = np.linspace(0, epsilon.size - 1, 25).astype(int)
    run = exact.get(name, RUN)
    for e, most in zip(epsilon[kept], delta[kept], strict=True):
        assert run.answer(epsilon=float(e), rtol=1e-3).bounds.lower <= most * (1 + 1e-9)
    # and where a straight line joins two of its points, but for 1 %
    seen = np.flatnonzero(delta[1:] * delta[:-1] > 0)
    for i in seen[np.linspace(0, seen.size - 1, 25).astype(int)]:
        middle, between = (epsilon[i] + epsilon[i + 1]) / 2, math.sqrt(delta[i] * delta[i + 1])
        assert run.answer(epsilon=float(middle), rtol=1e-3).bounds.lower <= between * 1.01


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("start", "end"),
    [((0.0, 0.5), (2.0, 1e-3)), ((3.0, 0.9), (900.0, 1e-30)), ((1.0, 0.1), (2.0, 0.0))],
)
def test_between_points_the_line_is_a_chord_over_e_to_the_epsilon(
    start: tuple[float, float], end: tuple[float, float], turned: bool
) -> None:
    points = [end, start] if turned else [start, end]
    curve = tb.Curve.of_deltas([e for e, _ in points], [tb.Bounds(d / 2, d) for _, d in points])
    epsilon, delta = np.array(curve.plot(ax=Figure().subplots()).lines[1].get_data())
    assert list(zip(epsilon[[0, -1]], delta[[0, -1]], strict=True)) == points
    assert (np.diff(epsilon) * (-1 if turned else 1) >= 0).all()
    (e0, d0), (e1, d1) = start, end
    with np.errstate(divide="ignore"):  # at the ends
        log_near, log_far = np.log((d0 - delta) / (d0 - d1)), np.log((delta - d1) / (d0 - d1))
    there = np.logaddexp(e0 + log_far, e1 + log_near)
    np.testing.assert_allclose(epsilon, there, rtol=1e-9)
    steps = np.diff(np.log(delta[delta > 0]))
    assert np.abs(steps).max() <= 0.0101


def test_a_composition_draws_itself_at_points_of_its_own() -> None:
    ax = RUN.plot(ax=Figure().subplots(), label="run")
    lower, upper = ax.lines
    marks = upper.get_markevery()
    epsilons, deltas = np.array(upper.get_data())[:, marks]
    assert len(marks) == 41
    assert 0.8 * RUN.total_variation().lower <= deltas[0] < RUN.total_variation().lower
    assert deltas[-1] == 1e-12
    assert (np.diff(epsilons) > 0).all()
    curve = RUN.curve(deltas=deltas.tolist())
    np.testing.assert_array_equal(epsilons, curve.upper)
    np.testing.assert_array_equal(lower.get_xdata(), curve.lower)
    assert ax.get_legend().get_texts()[0].get_text() == "run: certified lower bound, at the points"


@pytest.mark.parametrize("run", [tb.Composition(), tb.Gaussian(1e11, 1e-6) * 2])
def test_what_reveals_less_than_the_last_delta_is_drawn_at_epsilon_0(run: tb.Composition) -> None:
    upper = run.plot(ax=Figure().subplots()).lines[1]
    assert np.abs(upper.get_xdata()).max() < 1e-12


def test_points_at_infinity_are_left_out() -> None:
    leaking = tb.Laplace(1.0) + tb.ApproximateDP(0.1, 1e-7)
    epsilons, deltas = np.array(leaking.plot(ax=Figure().subplots()).lines[1].get_data())
    assert deltas[np.isfinite(epsilons)].min() >= 1e-7


def test_a_plot_refuses_a_gap_by_name() -> None:
    with pytest.raises(tb.ParameterError, match=r"rtol must be in \(0, 1\), got 2"):
        RUN.plot(rtol=2)


def test_two_curves_share_axes_and_differ_in_colour() -> None:
    ax = Figure().subplots()
    DELTA_CURVE.plot(ax=ax, label="a")
    assert DELTA_CURVE.plot(ax=ax, label="b") is ax
    assert len({line.get_color() for line in ax.lines}) == 4


def test_a_curve_plots_itself_on_new_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot

    ax = DELTA_CURVE.plot(label="run")
    assert len(ax.lines) == 2
    pyplot.close(ax.figure)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")]
)
def test_pictures_are_saved_in_the_format_of_the_name(
    name: str, magic: bytes, tmp_path: Path
) -> None:
    save_plot({"one": DELTA_CURVE, "two": EPSILON_CURVE}, tmp_path / name, title="both")
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_no_points_make_an_empty_picture(tmp_path: Path) -> None:
    save_plot({"": tb.Curve.of_deltas([], [])}, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").exists()


def test_other_endings_and_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        tb.errors.FileError, match=r"a\.jpeg: the name must end in \.png, \.svg, \.pdf"
    ):
        save_plot({"": DELTA_CURVE}, tmp_path / "a.jpeg")
    with pytest.raises(tb.errors.FileError, match="no such file or directory"):
        save_plot({"": DELTA_CURVE}, tmp_path / "nowhere" / "a.png")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("matplotlib", "matplotlib.pyplot", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(tb.errors.ExtraError, match=r"pip install 'tightbudget\[plot\]'"):
        DELTA_CURVE.plot()
    with pytest.raises(ImportError, match="plots need matplotlib"):
        save_plot({"": DELTA_CURVE}, "a.png")


# -------------------------------------------------------------------------- schedules


@pytest.fixture(scope="module")
def schedule() -> tb.StoppingSchedule:
    return tb.early_stopping(tb.Gaussian(5.0), [5, 10, 20], 1e-5)


def test_a_schedule_is_drawn_beside_two_other_accounts(schedule) -> None:
    ax = schedule.plot(ax=Figure().subplots())
    drawn = [np.array(line.get_data()) for line in ax.lines]
    for (x, y), prices in zip(
        drawn, (schedule.separate, schedule.renyi_filter(), schedule.epsilons), strict=True
    ):
        np.testing.assert_array_equal(x, schedule.stops)
        np.testing.assert_array_equal(y, prices)
    assert ax.get_xlabel() == "steps run before stopping"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "each stop accounted separately",
        "Rényi filter",
        "this schedule, δ = 1e-05",
    ]


def test_a_schedule_is_written(schedule, tmp_path: Path) -> None:
    save_schedule(schedule, tmp_path / "prices.svg", title="twenty steps")
    assert "<svg" in (tmp_path / "prices.svg").read_text()
    with pytest.raises(tb.errors.FileError, match="the name must end in"):
        save_schedule(schedule, tmp_path / "prices.jpeg")


def test_intervals_are_bars_with_their_bounds_beside_them() -> None:
    ax = draw_intervals(
        {
            "wide": tb.Bounds(1.0, 4.0),
            "narrow": tb.Bounds(2.0, 2.0001),
            "open": tb.Bounds(0.0, math.inf),
        },
        ax=Figure().subplots(),
        colours={"wide": "#b07d12"},
    )
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["wide", "narrow", "open"]
    assert ax.yaxis_inverted()  # the first one is on top
    bars = ax.lines[::2]  # each before the marks at its ends
    assert [[*bar.get_xdata()] for bar in bars[:2]] == [[1.0, 4.0], [2.0, 2.0001]]
    assert bars[0].get_color() == "#b07d12"
    # what is off the axis goes to its end
    low, high = bars[2].get_xdata()
    assert ax.get_xlim()[0] <= low < 1.0
    assert 4.0 < high <= ax.get_xlim()[1]
    assert [text.get_text() for text in ax.texts] == ["[1, 4]", "2", "[0, inf]"]
