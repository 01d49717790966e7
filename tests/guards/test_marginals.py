"""Every guard of marginals is taken away once, and a test of the room must turn red."""

from __future__ import annotations

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

RUN = "tests/marginals/test_marginal_run.py::test_"
TABLES = "tests/marginals/test_tables.py::test_"
AIM = "tests/marginals/test_aim_run.py::test_"
KEPT = "tests/marginals/test_kept_tables.py::test_"

MARGINALS = [
    Without(
        "noise of one marginal",
        {"noise-of-all-marginals": "most = moves * multiplier**2"},
        fails=RUN + "all_noise_of_one_measurement_is_what_the_move_declares[None-1]",
    ),
    Without(
        "noise without that of the grid",
        {"noise-of-the-grid": "points = root_up(variance / Fraction(step) ** 2)"},
        fails=RUN + "the_grid_is_so_fine_that_continuous_noise_covers_it[1.0]",
    ),
    Without(
        "a grid that counts do not lie on",
        {"counts-on-the-grid": "return 2.0 ** (math.floor(log / 2.0) - _FINE)"},
        fails=RUN + "the_grid_is_so_fine_that_continuous_noise_covers_it[1000000000.0]",
    ),
    Without(
        "scores that one row moves",
        {"scores-of-all-rows-of-a-unit": "moves = max(factors) * reach"},
        fails=RUN + "a_selection_has_exactly_its_chances[asked0-1.0-0.0-2]",
    ),
    Without(
        "rows of merged cells counted twice",
        {"merged-rows-once": "whole = 2 * counts.take(cells, axis).sum(axis=axis, keepdims=True)"},
        fails=RUN + "merged_cells_count_as_one_with_the_noise_of_one",
    ),
    Without(
        "half the noise",
        {"noise-of-all-marginals": "most = moves * multiplier**2 * sum(squares) / 4"},
        fails=RUN + "all_noise_of_one_measurement_is_what_the_move_declares[None-1]",
    ),
    Without(
        "scores taken for monotone ones",
        {"scores-of-all-rows-of-a-unit": "moves = max(factors) * self._most * reach / 2"},
        fails=RUN + "a_selection_has_exactly_its_chances[asked0-1.0-0.0-2]",
    ),
    Without(
        "noise of one unit added where one is replaced",
        {"replaced-rows-move-twice": "if False:"},
        fails=RUN + "counts_and_scores_move_so_far_and_no_further[replace-one]",
    ),
    Without(
        "a plan for any neighbours",
        {"relation-of-the-plan": "if False:"},
        fails=RUN + "a_plan_that_was_declared_for_another_relation_is_refused[replace-one]",
    ),
    Without(
        "selections without end",
        {"each-run-once": "pass"},
        fails=RUN + "each_of_several_selections_runs_once",
    ),
    Without(
        "marginals of any size",
        {"marginal-fits-memory": "if False:"},
        fails=RUN + "what_is_refused_runs_nothing_and_the_run_goes_on[too-large]",
    ),
    Without(
        "all rows of a unit",
        {"rows-of-a-unit": "pass"},
        fails=RUN + "one_unit_more_moves_marginals_by_its_rows_at_most",
    ),
    Without(
        "all rows of a unit without a hash",
        {"unit-without-a-hash": "found.append(True)"},
        fails=RUN + "rows_of_a_unit_of_any_type_are_so_many_at_most[list]",
    ),
    Without(
        "a complex number moves the rows of others",
        {"own-cell-alone": "numbers = np.full(array.shape, np.nan)"},
        fails=RUN + "no_value_raises_and_none_changes_where_others_count[age-complex]",
    ),
    Without(
        "cells of all rows of a unit",
        {"cells-of-rows-of-a-unit": "pass"},
        fails=TABLES + "so_many_rows_of_a_unit_count_in_each_marginal[1]",
    ),
    Without(
        "numbers above the last edge in its range",
        {"nan-in-no-range": "within = x >= double(edges[0])"},
        fails=TABLES + "every_domain_of_every_type_is_counted_as_memory_does",
        slow=True,
    ),
    Without(
        "rows in no cell",
        {"rows-in-no-cell": "pass"},
        fails=TABLES + "so_many_rows_of_a_unit_count_in_each_marginal[1]",
    ),
    Without(
        "any delta for an epsilon",
        {"delta-covers-epsilon": "if False:"},
        fails=RUN + "other_refusals[delta-too-small]",
    ),
    Without(
        "the file of any run",
        {"kept-of-this-run": "if False:"},
        fails=AIM + "the_file_of_another_run_is_refused[given0-run is of one with another epsilon]",
    ),
    Without(
        "part of a measurement",
        {"whole-measurements": "if True:"},
        fails=KEPT + "a_measurement_of_which_a_line_is_damaged_is_left_out",
    ),
]


@each(MARGINALS)
def test_without_the_guard_a_truth_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without, request: pytest.FixtureRequest
) -> None:
    lose_a_truth(monkeypatch, mutation, request.session)
