"""Exceptions, signals and acts in the midst of acts on a budget: nothing is lost, nothing grows.

An act is run again and again, each time with something done at the next of its lines, opcodes or
calls. What it finds afterwards is the state before the act or the state after it, exactly; and
the same act again then ends in the state after it.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.output_dp.account import Account, Hold
from tightbudget.output_dp.transactions import held

ROOM = ("/tightbudget/output_dp/", "/tightbudget/release/sparse_vector", "mutant")
QUARTER = tb.OutputDP({"a": 0.25, "b": 0.125}, delta=Fraction(1, 64))
PURE = tb.OutputDP({"a": 0.25, "b": 0.125})

# every kind of account: how it is made, and what it takes
KINDS: dict[str, tuple[Callable[[], Account], Any]] = {
    "filter": (lambda: tb.OutputDPFilter(4, 0.5), QUARTER),
    "odometer": (tb.OutputDPOdometer, QUARTER),
    "part": (lambda: tb.OutputDPFilter(4, 0.5).sub(2, 0.25), QUARTER),
    "part-of-a-part": (lambda: tb.OutputDPOdometer().sub(4, 0.5).sub(2, 0.25), QUARTER),
    "advanced": (lambda: tb.AdvancedFilter(5, 0.5), QUARTER),
    "zcdp": (lambda: tb.ZCDPFilter(1), PURE),
    "renyi": (lambda: tb.RenyiFilter(2, 1), PURE),
    "gaussian-dp": (lambda: tb.GaussianDPFilter(1), 0.25),
}


@dataclass
class Scene:
    """An account with one reservation, and one started run that talks."""

    account: Account
    guarantee: Any

    def __post_init__(self) -> None:
        self.reserved = self.account.reserve(self.guarantee)
        self.started = self.account.reserve(self.guarantee, interactive=True)
        self.started.start()

    @property
    def family(self) -> list[Account]:
        """The account, and all that it is a part of."""
        found = [self.account]
        while (above := getattr(found[-1], "_parent", None)) is not None:
            found.append(above)
        return found

    def state(self) -> tuple[Any, ...]:
        """All there is to know."""
        accounts = [(*a._now, a._left()) for a in self.family]
        holds = [hold._now for hold in (self.reserved, self.started)]
        talking = self.started in self.account._transactions.read(self.account._conversations)
        return accounts, holds, talking


def nothing_held(scene: Scene) -> None:
    """What comes before a part can be closed."""
    scene.reserved.void()
    scene.started.settle("b")


def open_a_part(scene: Scene) -> None:
    assert isinstance(scene.account, tb.OutputDPOdometer)
    scene.account.sub(0.125, Fraction(1, 64))


def close(scene: Scene) -> None:
    assert isinstance(scene.account, tb.OutputDPFilter)
    scene.account.close()


@dataclass(frozen=True)
class Act:
    """Something done to a scene, and whether the same again changes nothing."""

    run: Callable[[Scene], object]
    again: bool
    before: Callable[[Scene], None] = lambda scene: None
    kinds: tuple[str, ...] = tuple(KINDS)


FILTERS = ("filter", "part", "part-of-a-part")
ACTS = {
    "reserve": Act(lambda s: s.account.reserve(s.guarantee), again=False),
    "start": Act(lambda s: s.reserved.start(), again=False),
    "settle": Act(lambda s: s.started.settle("b"), again=True),
    "settle what was not started": Act(lambda s: s.reserved.settle("b"), again=True),
    "forfeit": Act(lambda s: s.started.forfeit(), again=True),
    "void": Act(lambda s: s.reserved.void(), again=True),
    "open a part": Act(open_a_part, again=False, kinds=("odometer", *FILTERS)),
    "close": Act(close, again=True, before=nothing_held, kinds=FILTERS),
}
CASES = [(kind, name) for name, act in ACTS.items() for kind in act.kinds]


def scene_of(kind: str, act: Act) -> Scene:
    make, guarantee = KINDS[kind]
    scene = Scene(make(), guarantee)
    act.before(scene)
    return scene


# ------------------------------------------------------------------- at the next place


def in_room(frame: FrameType) -> bool:
    return any(place in frame.f_code.co_filename for place in ROOM)


def at_lines(frame: FrameType, event: str) -> bool:
    return event == "line"


def at_opcodes(frame: FrameType, event: str) -> bool:
    return event == "opcode"


def at_loops(frame: FrameType, event: str) -> bool:
    """Where a loop has jumped back: there signals are handled, too."""
    return event == "opcode" and dis.opname[frame.f_code.co_code[frame.f_lasti]] == "FOR_ITER"


Where = Callable[[FrameType, str], bool]


@contextlib.contextmanager
def at_place(number: int, deed: Callable[[], object], where: Where) -> Iterator[list[str]]:
    """Does something at the n-th such place that runs in the room; yields where that was."""
    passed, places = 0, list[str]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if not in_room(frame):
            return None
        frame.f_trace_opcodes = where is not at_lines
        if where(frame, event):
            passed += 1
            if passed == number:
                places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                deed()
        return trace

    before = sys.gettrace()
    # Python 3.12 has opcodes traced only if some frame has asked for it before a trace is set
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        yield places
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def at_call(number: int, deed: Callable[[], object]) -> Iterator[list[str]]:
    """Does something at the n-th call, or return, from the room: there signals are handled."""
    passed, places = 0, list[str]()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal passed
        if in_room(frame):
            passed += 1
            if passed == number:
                places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                deed()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield places
    finally:
        sys.setprofile(before)


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted_everywhere(kind: str, name: str, where: Where) -> int:
    """An exception at each place of an act: the state is that before, or that after; how many."""
    act = ACTS[name]
    smooth = scene_of(kind, act)
    act.run(smooth)
    after = smooth.state()
    for number in range(1, 10_000):
        scene = scene_of(kind, act)
        was = scene.state()
        with at_place(number, interrupt, where) as places, contextlib.suppress(KeyboardInterrupt):
            act.run(scene)
        if not places:
            return number - 1
        now = scene.state()
        assert now in (was, after), f"{places}: {now}"
        if act.again or now == was:
            act.run(scene)
            assert scene.state() == after, f"again, after {places}"
    raise AssertionError("it does not end")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_an_exception_at_any_line_finds_an_act_undone_or_done(kind: str, name: str) -> None:
    assert interrupted_everywhere(kind, name, at_lines) > 10


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[] if kind == "part" else [pytest.mark.slow])
        for kind, name in CASES
    ],
)
def test_an_exception_at_any_opcode_finds_an_act_undone_or_done(kind: str, name: str) -> None:
    assert interrupted_everywhere(kind, name, at_opcodes) > 100


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("kind", "name"), [c for c in CASES if c[1] != "close"])
def test_an_act_in_the_midst_of_another_is_not_lost(kind: str, name: str) -> None:
    """As by a signal handler, or by a finalizer when memory is freed."""
    assert acted_within_everywhere(kind, name)


def acted_within_everywhere(kind: str, name: str) -> bool:
    """Whether a charge wherever signals are handled in an act ends like a charge before it."""
    act = ACTS[name]

    def set_out() -> tuple[Scene, Callable[[], object]]:
        scene = scene_of(kind, act)
        other, third = (scene.account.reserve(scene.guarantee) for _ in range(2))
        # the second act writes out the first, and changes other records

        def charge() -> None:
            other.settle("b")
            third.start()

        return scene, charge

    smooth, charge = set_out()
    charge()
    act.run(smooth)
    for within in (at_call, partial(at_place, where=at_loops)):
        for number in range(1, 10_000):
            scene, charge = set_out()
            with within(number, charge) as places:
                act.run(scene)
            if not places:
                assert number > 1
                break
            if scene.state() != smooth.state():
                return False
    return True


@pytest.mark.parametrize("kind", FILTERS)
def test_a_reservation_in_the_midst_of_closing_is_refused_or_keeps_it_open(kind: str) -> None:
    ended = set[bool]()
    for number in range(1, 10_000):
        scene = scene_of(kind, ACTS["close"])

        def reserve(scene: Scene = scene) -> None:
            with contextlib.suppress(tb.errors.SettlementError):
                scene.account.reserve(scene.guarantee)

        with at_call(number, reserve) as places, contextlib.suppress(tb.errors.SettlementError):
            close(scene)
        if not places:
            break
        assert scene.account._now.closed == (scene.account._now.holders == 0)
        ended.add(scene.account._now.closed)
    assert ended == {False, True}


def test_a_finalizer_may_settle_in_the_midst_of_an_act() -> None:
    """A conversation that nobody ends is ended by the collector of garbage."""
    account = tb.OutputDPFilter(2)
    with pytest.warns(UserWarning, match="not random"):
        noise = tb.release.FixedNoise([0] * 8)

    def begun() -> None:
        block = tb.release.SparseVector(0.5, 1).open(None, meter=account, noise=noise)
        block.__enter__()
        circle: list[Any] = [block]
        circle.append(circle)

    begun()
    assert account.held.epsilon == 0.5
    with at_call(20, gc.collect):
        account.reserve(PURE).settle("a")
    assert account.spent.epsilon == 0.75
    assert account.held.epsilon == 0.0


def test_an_answer_is_paid_for_whatever_interrupts_the_question() -> None:
    """Also where the analyst goes on after an interrupt, within the block."""
    with pytest.warns(UserWarning, match="not random"):
        noise = tb.release.FixedNoise(itertools.repeat(0))
    svt, places = tb.release.SparseVector(1, 4), ["before the first"]
    for number in itertools.count(1):
        account, answers = tb.OutputDPFilter(1), list[bool]()
        with (
            contextlib.suppress(tb.ReleaseError),
            svt.open(10**9, meter=account, noise=noise) as run,
        ):
            answers.append(run.ask(int, 0))
            with (
                at_place(number, interrupt, at_lines) as places,
                contextlib.suppress(KeyboardInterrupt),
            ):
                answers.append(run.ask(int, 0))
            with contextlib.suppress(tb.errors.SettlementError):
                answers.append(run.ask(int, 0))
        assert all(answers)
        assert account._spent.counted >= svt.guarantee.price(len(answers))
        assert account._held.counted == 0
        if not places:
            break
    assert number > 10
    assert account._spent.counted == svt.guarantee.price(3)


@pytest.mark.slow
def test_real_signals_lose_no_charge() -> None:
    """A timer interrupts what charges a budget, wherever it is."""
    account = tb.OutputDPFilter(10**9, 1)
    unit = tb.OutputDP({"a": 1, "b": 0.5})
    settled = interrupts = 0
    armed = False

    def handler(*_: Any) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        while interrupts < 20_000:
            hold: Hold | None = None
            signal.setitimer(signal.ITIMER_REAL, 5e-5)
            try:
                armed = True
                for _ in range(10):
                    hold = account.reserve(unit)
                    hold.start()
                    hold.settle("b")
                    settled, hold = settled + 1, None
                armed = False
            except KeyboardInterrupt:
                interrupts += 1
            if hold is not None:
                hold.settle("b")
                settled += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert account._spent.counted == Fraction(settled, 2)
    # a hold that reserve did not return is held by nobody, and one may be settled and not counted
    assert account._spent.counted in (Fraction(settled, 2),)
    assert account._now.holders == account._held.counted <= interrupts
    # and the lock is nobody's
    free: list[bool] = []
    other = threading.Thread(
        target=lambda: free.append(account._transactions._lock.acquire(timeout=5))
    )
    other.start()
    other.join()
    assert free == [True]


# ------------------------------------------------------------------------ without the guard


def refused(deed: Callable[[], object]) -> bool:
    try:
        deed()
    except AssertionError:
        return False
    return True


NOT_ONE = """for changed, value in decide():
                changed.copy = number, value
            next_ = number, ()"""
TWO = """self._transactions.run(lambda: end()[:1])
    if self._parent is not None:
        whole, spent = self._whole, self._now.spent
        self._transactions.run(lambda: self._parent._exchanged(self, held=whole, charge=spent))"""

MUTATIONS = [
    Without(
        "an act is one assignment",
        {
            "act-assignment": """
for changed, value in decide():
    changed.copy = number, value
next_ = number, ()
"""
        },
        lambda: refused(lambda: interrupted_everywhere("filter", "settle", at_lines)),
    ),
    Without(
        "an act is decided from what it replaces",
        {"last-act-unchanged": "if True:"},
        lambda: acted_within_everywhere("filter", "settle"),
    ),
    Without(
        "an act that was interrupted is written out by the next",
        {"interrupted-act-written-out": "pass"},
        lambda: refused(lambda: interrupted_everywhere("filter", "settle", at_lines)),
    ),
    Without(
        "what is written out late is not older than what is there",
        {"late-write-not-older": "if True:"},
        lambda: all(acted_within_everywhere("part", name) for name in ("settle", "reserve")),
    ),
    Without(
        "a closed part and the account around it change in one act",
        {
            "closed-part-in-one-act": """
self._transactions.run(lambda: end()[:1])
if self._parent is not None:
    whole, spent = self._whole, self._now.spent
    self._transactions.run(lambda: self._parent._exchanged(self, held=whole, charge=spent))
"""
        },
        lambda: refused(lambda: interrupted_everywhere("part", "close", at_lines)),
    ),
]


@pytest.mark.one_in(3)
@each(MUTATIONS)
def test_without_the_guard_a_charge_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutation: Without
) -> None:
    lose_a_truth(monkeypatch, mutation)


def test_a_lock_is_freed_whatever_is_raised() -> None:
    """Where it was taken, and only there; a thread that has it may take it once more."""
    lock = threading.RLock()
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error), held(lock), held(lock):
            raise error
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False)))
    other.start()
    other.join()
    assert free == [True]

    class Interrupted:
        def acquire(self, blocking: bool = True) -> bool:
            raise KeyboardInterrupt

        def release(self) -> None:
            raise AssertionError("it was not taken")

    with pytest.raises(KeyboardInterrupt), held(Interrupted()):
        raise AssertionError("it was not taken")
