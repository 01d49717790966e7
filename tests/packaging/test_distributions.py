"""What is published: the metadata of the wheel, and what the source distribution holds."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling import build
from tests.packaging.test_readme import README, relative

from tightbudget.links import DOCUMENTATION, REPOSITORY

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The wheel's metadata, as the build backend writes them."""
    folder = tmp_path_factory.mktemp("metadata")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        name = build.prepare_metadata_for_build_wheel(str(folder))
    return (folder / name / "METADATA").read_text(encoding="utf-8")


def test_the_wheel_shows_readme_and_no_link_that_leads_nowhere(metadata: str) -> None:
    message = Parser().parsestr(metadata)
    assert message["Description-Content-Type"].startswith("text/markdown")
    shown = message.get_payload()
    assert isinstance(shown, str)
    assert shown.strip() == README.strip()
    assert not relative(shown)


def test_the_wheel_says_where_the_project_lives(metadata: str) -> None:
    message = Parser().parsestr(metadata)
    urls = dict(url.split(", ", 1) for url in message.get_all("Project-URL", []))
    assert urls["Documentation"] == DOCUMENTATION
    assert urls["Source"] == REPOSITORY
    assert message["License-Expression"] == "Apache-2.0"


@pytest.mark.slow  # it packs the whole repository
def test_the_source_distribution_holds_what_git_tracks(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("no git: what the source distribution holds is not compared with a checkout")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        name = build.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as packed:
        held = {member.name.partition("/")[2] for member in packed if member.isfile()}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    assert held - {"PKG-INFO"} == {name for name in listed if (ROOT / name).exists()}


@pytest.mark.slow  # it packs the package
def test_the_wheel_holds_the_package_alone(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        name = build.build_wheel(str(tmp_path))
    with zipfile.ZipFile(tmp_path / name) as packed:
        held = packed.namelist()
    assert {path.partition("/")[0].partition("-")[0] for path in held} == {"tightbudget"}
    assert "tightbudget/py.typed" in held
    assert not [path for path in held if path.endswith((".pyc", ".db"))]
