"""Opacus's own tests, with ``tight`` as the accountant of each engine: the conftest of its sources.

Nothing is changed in the tests themselves. An engine that names no accountant gets ``tight``.
Hypothesis draws few examples of each test, as they vary models and not the accountant. Where
torchvision is not installed, a stand-in has what the tests use of it, but none of its large
models: a test that asks for one is skipped, and says so.
"""

from __future__ import annotations

import sys
import types
from importlib.util import find_spec
from typing import Any

import hypothesis
import pytest
import torch

# The suite takes a minute of CPU time with 4 examples of each test; one file of it alone took more
# than a minute with the 100 examples that are Hypothesis's default.
hypothesis.settings.register_profile("few", max_examples=4, deadline=None)
hypothesis.settings.load_profile("few")
# With several threads, sums of floats are rounded in varying orders: one comparison of two weights,
# which opacus.toml leaves out, failed in about every third run, with each accountant.
torch.set_num_threads(1)


class _Images(torch.utils.data.Dataset):  # type: ignore[misc]
    """Random images with random labels, after torchvision's FakeData."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, ...] = (3, 224, 224),
        num_classes: int = 10,
        transform: Any = None,
        **_: Any,
    ) -> None:
        self._size, self._shape, self._classes = size, image_size, num_classes
        self._transform = transform or (lambda image: image)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index >= self._size:
            raise IndexError(index)
        drawn = torch.Generator().manual_seed(index)
        image = torch.rand(self._shape, generator=drawn)
        return self._transform(image), int(torch.randint(self._classes, (), generator=drawn))


class _InTurn:
    """Applies transforms one after another, as torchvision's Compose does."""

    def __init__(self, transforms: list[Any]) -> None:
        self._transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self._transforms:
            image = transform(image)
        return image


def _normalized(mean: Any, std: Any) -> Any:
    centre, scale = (torch.tensor(each).reshape(-1, 1, 1) for each in (mean, std))
    return lambda image: (image - centre) / scale


class _Models(types.ModuleType):
    """A module whose every function skips the test that calls it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def skipped(*_: Any, **__: Any) -> Any:
            pytest.skip(f"torchvision is not installed, and {name} is one of its models")

        return skipped


def _stand_in() -> None:
    """Puts a stand-in for torchvision among the modules."""
    top, data, images, models = (
        types.ModuleType("torchvision"),
        types.ModuleType("torchvision.datasets"),
        types.ModuleType("torchvision.transforms"),
        _Models("torchvision.models"),
    )
    data.FakeData = _Images  # type: ignore[attr-defined]
    images.Compose = _InTurn  # type: ignore[attr-defined]
    images.ToTensor = lambda: lambda image: image  # type: ignore[attr-defined]
    images.Normalize = _normalized  # type: ignore[attr-defined]
    for module in (data, images, models):
        sys.modules[module.__name__] = module
        setattr(top, module.__name__.rpartition(".")[2], module)
    sys.modules["torchvision"] = top


if find_spec("torchvision") is None:
    _stand_in()

from opacus import PrivacyEngine  # noqa: E402

import tightbudget.adapters.opacus  # noqa: E402, F401 (registers the accountant)

_init = PrivacyEngine.__init__


def _tight_by_default(self: Any, *, accountant: str = "tight", **rest: Any) -> None:
    _init(self, accountant=accountant, **rest)


PrivacyEngine.__init__ = _tight_by_default
