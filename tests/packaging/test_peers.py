"""The runner of peers' own tests: `make peers`, on a small peer that is made here."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import re
import tarfile
from pathlib import Path

import pytest
from peers import run

ROOT = Path(__file__).resolve().parents[2]
VERSION = importlib.metadata.version("iniconfig")

# A peer that is installed, under tests that are not its own: an accountant that says 1.
TESTS = """
import pytest
from here import answer

@pytest.mark.parametrize("asked", [1, 2])
def test_values(asked):
    assert answer() == asked

def test_skipped():
    pytest.skip("not here")

class TestMore:
    def test_right(self):
        assert answer()
"""
LIST = """
distribution = "iniconfig"
version = "{version}"
sha256 = "{sha256}"

[[suite]]
files = ["tests/test_peer.py"]
tests = 4
skipped = 1
differ = 1
[suite.replace]
"from here import answer" = "answer = lambda: 1"
"""


class Small:
    """A folder of lists with one peer, and a cache with its source distribution."""

    def __init__(self, folder: Path) -> None:
        self.lists, self.cache, source = folder, folder / "cache", folder / "source"
        (source / "tests").mkdir(parents=True)
        (source / "tests" / "test_peer.py").write_text(TESTS, "utf-8")
        self.cache.mkdir()
        self.archive = self.cache / f"iniconfig-{VERSION}.tar.gz"
        with tarfile.open(self.archive, "w:gz") as packed:
            packed.add(source, f"iniconfig-{VERSION}")

    def list(self, *more: str, version: str = VERSION, sha256: str = "") -> None:
        right = hashlib.sha256(self.archive.read_bytes()).hexdigest()
        text = LIST.format(version=version, sha256=sha256 or right)
        (self.lists / "small.toml").write_text(text + "".join(more), "utf-8")

    def run(self, *names: str) -> int:
        return run.main([*names, "--lists", str(self.lists), "--cache", str(self.cache)])


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path)


def differs(*tests: str) -> str:
    return f'[[differs]]\ntests = {list(tests)!r}\nwhy = "two is not one"\n'


# A process of pytest takes more than a second of CPU time.
@pytest.mark.slow
def test_what_fails_as_listed_passes(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    small.list(differs("test_values[2]"))
    assert small.run("small") == 0
    said = capsys.readouterr().out
    assert re.search(r"iniconfig +\S+ +2 of 4 tests pass, 1 differ, 1 are skipped", said)


@pytest.mark.slow
def test_an_unlisted_failure_is_an_error(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    small.list()
    assert small.run() == 1
    assert "fails, and is not listed: tests/test_peer.py::test_values[2]" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_left_out_is_not_run(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    small.list(differs("test_values[2]"), '[[left_out]]\ntests = ["TestMore*"]\nwhy = "long"\n')
    assert small.run() == 1
    assert "tests/test_peer.py: tests = 3, listed 4" in capsys.readouterr().out


RAN = {
    "tests/test_peer.py::test_values[1]": "passed",
    "tests/test_peer.py::test_values[2]": "failed",
    "tests/test_peer.py::test_skipped": "skipped",
    "tests/test_peer.py::TestMore::test_right": "passed",
}


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ((), "fails, and is not listed: tests/test_peer.py::test_values[2]"),
        (
            (differs("test_values[*"),),
            "passed, and is listed as differing: tests/test_peer.py::test_values[1]",
        ),
        (
            (differs("test_values[2]", "test_skipped"),),
            "skipped, and is listed as differing: tests/test_peer.py::test_skipped",
        ),
        (
            (differs("test_values[2]", "TestMore::test_gone"),),
            "listed, and there is no such test: TestMore::test_gone",
        ),
    ],
    ids=["unlisted", "passes", "skipped", "gone"],
)
def test_what_is_not_as_listed_is_seen(small: Small, more: tuple[str, ...], complaint: str) -> None:
    small.list(*more)
    (peer,) = run.peers(small.lists)
    assert run.compare(peer, [RAN]) == [complaint]


def test_other_numbers_than_the_listed_ones_are_seen(small: Small) -> None:
    small.list(differs("test_values[2]"))
    (peer,) = run.peers(small.lists)
    assert run.compare(peer, [RAN]) == []
    fewer = {test: said for test, said in RAN.items() if not test.endswith("right")}
    assert run.compare(peer, [fewer]) == ["tests/test_peer.py: tests = 3, listed 4"]
    more = {**RAN, "tests/test_peer.py::TestMore::test_right": "skipped"}
    assert run.compare(peer, [more]) == ["tests/test_peer.py: skipped = 2, listed 1"]
    del peer.suite[0]["skipped"]
    assert run.compare(peer, [RAN]) == ["tests/test_peer.py: skipped = 1, listed 0"]
    peer.suite[0]["skipped"] = 1
    both = {**RAN, "tests/test_peer.py::test_values[1]": "failed"}
    assert run.compare(peer, [both])[0] == "tests/test_peer.py: differ = 2, listed 1"


@pytest.mark.slow
def test_without_a_network_a_suite_is_skipped_and_a_line_says_so(
    small: Small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small.list()
    small.archive.unlink()
    # an address on which nobody listens, and pip's own folder of what it once fetched left out
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(run, "PIP", (*run.PIP, "--retries", "0"))
    assert small.run() == 0
    said = capsys.readouterr().out
    assert re.search(r"iniconfig +\S+ +SKIPPED: could not be fetched: ERROR: ", said)


def test_another_file_than_the_list_was_made_for_is_not_run(small: Small) -> None:
    small.list(sha256="0" * 64)
    with pytest.raises(SystemExit, match=r"has the SHA-256 \w+, and small.toml says 0000"):
        small.run()


def test_another_version_than_the_one_installed_is_an_error(
    small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    small.list(version="0.1")
    small.archive.rename(small.cache / "iniconfig-0.1.tar.gz")
    assert small.run() == 1
    assert f"ERROR: the list is for this version, and {VERSION} is installed" in (
        capsys.readouterr().out
    )


def test_a_text_to_replace_that_is_gone_is_an_error(small: Small) -> None:
    small.list()
    path = small.lists / "small.toml"
    path.write_text(path.read_text("utf-8").replace('"from here', '"from there'), "utf-8")
    with pytest.raises(SystemExit, match=r"small.toml: 'from there import answer' is in none of"):
        small.run()


@pytest.mark.slow
def test_tests_that_cannot_be_collected_are_an_error(small: Small) -> None:
    small.list()
    path = small.lists / "small.toml"
    path.write_text(path.read_text("utf-8").replace("answer = lambda: 1", "import gone"), "utf-8")
    with pytest.raises(SystemExit, match=r"small\.toml: pytest could not run the tests"):
        small.run()


def test_a_name_of_no_list_is_refused(small: Small, capsys: pytest.CaptureFixture[str]) -> None:
    small.list()
    with pytest.raises(SystemExit):
        small.run("large")
    assert "no list named large: there are small" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("Case::test_a", True),
        ("test_a", True),
        ("some_test.py::Case::test_a", True),
        ("folder/some_test.py::Case::test_a", True),
        ("Case::*", True),
        ("*", True),
        ("est_a", False),
        ("Case::test", False),
        ("case::test_a", False),
        ("Case::test_[a]", False),
    ],
)
def test_a_test_is_named_by_the_end_of_its_id(pattern: str, is_meant: bool) -> None:
    assert run.matches("folder/some_test.py::Case::test_a", pattern) is is_meant


# ------------------------------------------------------------------------------- the lists


def test_every_list_says_why_and_its_proofs_are_there() -> None:
    broken = []
    for peer in run.peers():
        assert re.fullmatch(r"[0-9a-f]{64}", peer.sha256)
        assert peer.suite
        for table in [*peer.left_out, *peer.differs]:
            assert table["tests"]
            assert re.search(r"\w+ \w+", table["why"]), f"{peer.path.name}: {table}"
            if not there(table.get("proof", "")):
                broken.append(f"{peer.path.name}: {table['proof']}")
    assert not broken


def there(proof: str) -> bool:
    """Whether a proof, `tests/file.py::name` or a page, is there; none is, too."""
    path, _, name = proof.partition("::")
    if not (ROOT / path).exists():
        return False
    if not name:
        return True
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_a_proof_that_is_gone_is_seen() -> None:
    assert there("docs/reference/agreement.md")
    assert there("tests/packaging/test_peers.py::test_a_proof_that_is_gone_is_seen")
    assert not there("tests/packaging/test_peers.py::test_gone")
    assert not there("tests/gone.py")
