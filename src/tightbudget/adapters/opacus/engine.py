"""``PrivacyEngine.make_private``, wrapped so that a ``tight`` accountant sees the loader."""

from __future__ import annotations

import functools
from typing import Any

from opacus import PrivacyEngine

from tightbudget.accounting.calibrate import calibrate
from tightbudget.adapters.opacus.accountant import TightAccountant, same_relation
from tightbudget.adapters.opacus.loaders import epoch
from tightbudget.numerics.validate import positive_count


def _counts_tightly(engine: Any) -> bool:
    """Says whether the accountant of an engine is a ``tight`` one."""
    return bool(engine.accountant.mechanism() == TightAccountant.mechanism())


def hand_over_loaders() -> None:
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
                same_relation(self.accountant, replaced=False)
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
            lambda sigma: epoch(loader, sigma) * epochs,
            epsilon=given["target_epsilon"],
            delta=given["target_delta"],
        )
        return self.make_private(noise_multiplier=found.value, **rest)

    for wrapped, original in ((make_private, plain), (make_private_with_epsilon, by_target)):
        wrapped.plain = original  # type: ignore[attr-defined]
        setattr(PrivacyEngine, original.__name__, wrapped)
