from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

settings.register_profile(
    "house",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder beside the repository with reference values that are not part of it."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(
            "no folder 'shared' beside the repository: its reference values are not checked"
        )
    return path
