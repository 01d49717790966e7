"""Names that people guess of a mechanism or a composition are refused with the right call."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

import tightbudget as tb
from tightbudget.later import guesses

RUN = tb.Gaussian(2.0) * 3
ASKED = [tb.Gaussian(2.0), tb.Gaussian(2.0).subsampled(0.1), RUN]
RIGHT = {
    "gdp": ".risk(epsilon).mu",
    "mu": ".risk(epsilon).mu",
    "zcdp": ".renyi(order)",
    "rho": ".renyi(order)",
    "rdp": ".renyi(order)",
}


@pytest.mark.parametrize("asked", ASKED, ids=repr)
@pytest.mark.parametrize("name", RIGHT)
def test_a_guess_is_answered_with_the_right_call(asked: Any, name: str) -> None:
    said = re.escape(f"{type(asked).__name__}.{name} is not a method: {RIGHT[name]} bounds the ")
    with pytest.raises(AttributeError, match=f"^{said}"):
        getattr(asked, name)
    assert not hasattr(asked, name)
    assert name not in dir(asked)
    assert asked == copy.deepcopy(asked) == pickle.loads(pickle.dumps(asked))


def test_what_the_refusals_name_is_there() -> None:
    assert RUN.risk(1.0).mu.lower > 0
    assert RUN.renyi(2.0).lower > 0
    assert tb.compare(RUN, delta=1e-5)["zero-concentrated"].proved


def test_other_names_are_refused_by_python() -> None:
    with pytest.raises(AttributeError, match=r"^'Composition' object has no attribute 'nobody'$"):
        _ = RUN.nobody  # type: ignore[attr-defined]


def test_what_a_property_raises_is_not_hidden() -> None:
    @guesses(wrong="is right")
    class Kind:
        @property
        def broken(self) -> int:
            raise AttributeError("for a reason of its own")

    with pytest.raises(AttributeError, match=r"^for a reason of its own$"):
        _ = Kind().broken
    with pytest.raises(AttributeError, match=r"^Kind\.wrong is right$"):
        _ = Kind().wrong  # type: ignore[attr-defined]
