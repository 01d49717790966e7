"""Runs that are pending side by side, and runs in the middle of a conversation, by exhaustion."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random

import pytest
from tests.output_dp.analyst import Finite, random_mechanism

import tightbudget as tb

Deed = tuple[str, int, int]  # reserve (mechanism), run (hold, output), settle (hold, its output)


def replayed(cap: int, delta: Fraction, library: list[Finite], deeds: tuple[Deed, ...]) -> bool:
    """Whether the filter lets all this be done."""
    account = tb.OutputDPFilter(cap, delta)
    holds: list[tuple[tb.Hold, Finite]] = []
    try:
        for verb, i, output in deeds:
            if verb == "reserve":
                holds.append((account.reserve(library[i].guarantee), library[i]))
            elif verb == "run":
                holds[i][0].start()
            else:
                holds[i][0].settle(holds[i][1].outputs[output][2])
    except tb.errors.BudgetError:
        return False
    return True


def worst_with_holds(cap: int, delta: Fraction, library: list[Finite], runs: int) -> Fraction:
    """As ``worst_delta``, for analysts who reserve early, run in any order and settle late."""

    def value(a: Fraction, b: Fraction, deeds: tuple[Deed, ...]) -> Fraction:
        best = max(Fraction(0), a - 2**cap * b)
        if not a:
            return best
        holds = [library[i] for verb, i, _ in deeds if verb == "reserve"]
        ran = {i: output for verb, i, output in deeds if verb == "run"}
        settled = {i for verb, i, _ in deeds if verb == "settle"}
        for i, mechanism in enumerate(holds):
            if i not in ran:
                best = max(
                    best,
                    sum(
                        (
                            value(a * p, b * q, (*deeds, ("run", i, o)))
                            for o, (p, q, _) in enumerate(mechanism.outputs)
                        ),
                        Fraction(0),
                    ),
                )
            elif i not in settled:
                best = max(best, value(a, b, (*deeds, ("settle", i, ran[i]))))
        for i in range(len(library)) if len(holds) < runs else ():
            more = (*deeds, ("reserve", i, 0))
            if replayed(cap, delta, library, more):
                best = max(best, value(a, b, more))
        return best

    return value(Fraction(1), Fraction(1), ())


def small(random: Random) -> Finite:
    """Two or three outputs."""
    while len((found := random_mechanism(random)).outputs) > 3:
        pass
    return found


def test_pending_runs_get_no_more_than_the_budget() -> None:
    random = Random("pending")
    tight = 0
    for _ in range(60):
        library = [small(random), small(random)]
        delta = min(Fraction(1), sum((m.guarantee.delta for m in library), Fraction(0)))
        for cap in (1, 2):
            worst = worst_with_holds(cap, delta, library, 2)
            assert worst <= delta
            tight += worst > delta / 2
    assert tight > 20


# A conversation: an opening, then for each opening output and question an answer. All prices
# are those of the answer's cell.
Conversation = tuple[Finite, dict[tuple[int, int], Finite]]


def conversation(random: Random) -> Conversation:
    opening = small(random)
    answers = {(o, x): small(random) for o, x in product(range(len(opening.outputs)), (0, 1))}
    return opening, answers


def excess(talk: Conversation, between: dict[int, Finite] | None = None) -> Fraction:
    """The largest sum of (P - 2^E Q)_+ over views, of all analysts who ask after the opening.

    ``between``: what runs after the opening, by its output; its output may guide the question.
    """
    opening, answers = talk
    total = Fraction(0)
    for o, (p1, q1, _) in enumerate(opening.outputs):
        nothing = Finite(((Fraction(1), Fraction(1), 0),), (0,))
        run = between[o] if between else nothing
        for p, q, cell in run.outputs:
            a, b = p1 * p, q1 * q * 2 ** run.prices[cell]
            total += max(
                sum(
                    (
                        max(Fraction(0), a * p2 - b * q2 * 2 ** answers[o, x].prices[end])
                        for p2, q2, end in answers[o, x].outputs
                    ),
                    Fraction(0),
                )
                for x in (0, 1)
            )
    return total


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["P against Q", "Q against P"])
def test_runs_in_the_middle_of_a_conversation_cost_their_own_price_and_delta(
    direction: str,
) -> None:
    """Also where the conversation has a delta: nothing but another conversation must wait."""
    random = Random(direction)
    near = 0
    for _ in range(2000):
        talk = conversation(random)
        between = {o: small(random) for o in range(len(talk[0].outputs))}
        if direction == "Q against P":
            talk = talk[0].reversed(), {key: m.reversed() for key, m in talk[1].items()}
            between = {o: m.reversed() for o, m in between.items()}
        alone = excess(talk)
        bound = alone + max(m.excess() for m in between.values())
        worst = excess(talk, between)
        assert worst <= bound
        near += worst > max(alone, bound * 3 / 4) > 0
    assert near > 50
