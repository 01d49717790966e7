from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.cases import CASES

import tightbudget as tb
from tightbudget.accounting.plan_file import plan_text

STEP = tb.Gaussian(sigma=1.0).subsampled(rate=0.01)
MIXED = STEP * 1000 + tb.Laplace(scale=20.0) * 5


def plan(folder: Path, text: str | bytes, name: str = "plan.toml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_plan_lists_mechanisms_with_their_times(tmp_path: Path) -> None:
    path = plan(
        tmp_path,
        """
        tightbudget = 1
        [[steps]]
        mechanism = "gaussian"
        sigma = 1          # integers are numbers, too
        rate = 0.01
        times = 1000
        [[steps]]
        mechanism = "laplace"
        scale = 20.0
        times = 5
        """,
    )
    assert tb.read_plan(path) == MIXED
    assert tb.read_plan(str(path)) == MIXED


def test_times_version_and_relation_may_be_left_out_or_given(tmp_path: Path) -> None:
    bare = plan(tmp_path, '[[steps]]\nmechanism = "gaussian"\nsigma = 2.0\n')
    assert tb.read_plan(bare) == tb.Gaussian(sigma=2.0) * 1
    declared = plan(
        tmp_path, '[[steps]]\nmechanism = "gaussian"\nsigma = 2.0\nrelation = "replace-one"\n'
    )
    assert tb.read_plan(declared).relation is tb.Neighbouring.REPLACE_ONE


def test_equal_steps_are_counted(tmp_path: Path) -> None:
    step = '[[steps]]\nmechanism = "laplace"\nscale = 2.0\ntimes = 3\n'
    assert tb.read_plan(plan(tmp_path, step + step)) == tb.Laplace(scale=2.0) * 6


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", ["plan.toml", "plan.toml.gz"])
def test_what_is_written_is_read_back(case, name: str, tmp_path: Path) -> None:
    composition = case.mechanism * 3 + tb.RandomizedResponse(p=0.6) * 2
    tb.write_plan(composition, tmp_path / name)
    assert tb.read_plan(tmp_path / name) == composition


def test_the_empty_composition_is_written_and_read(tmp_path: Path) -> None:
    tb.write_plan(tb.compose([]), tmp_path / "plan.toml")
    assert tb.read_plan(tmp_path / "plan.toml") == tb.compose([])


def test_nested_subsampling_and_odd_strings_survive(tmp_path: Path) -> None:
    twice = tb.Gaussian(sigma=1.0).subsampled(0.1).subsampled(0.5)
    tb.write_plan(twice * 2, tmp_path / "plan.toml")
    assert tb.read_plan(tmp_path / "plan.toml") == twice * 2
    assert "times = 2" in plan_text(twice * 2)


def test_a_gzipped_plan_has_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a.toml.gz", "b.toml.gz"):
        tb.write_plan(MIXED, tmp_path / name)
    first, second = ((tmp_path / n).read_bytes() for n in ("a.toml.gz", "b.toml.gz"))
    assert first == second
    assert gzip.decompress(first).decode() == plan_text(MIXED)


def test_json_and_plans_describe_steps_alike(tmp_path: Path) -> None:
    steps = json.loads(MIXED.to_json())["steps"]
    lines = [f"{k} = {json.dumps(v)}" for step in steps for k, v in step.items()]
    written = plan_text(MIXED).splitlines()
    assert [line for line in written if "=" in line][1:] == lines


GOOD = '[[steps]]\nmechanism = "gaussian"\nsigma = 1.0\n'

REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", r"a plan needs \[\[steps\]\], and there are none"),
    "only a version": ("tightbudget = 1", r"a plan needs \[\[steps\]\]"),
    "not TOML": ("steps = [", "not TOML: "),
    "the same key twice": (GOOD + "sigma = 2.0\n", "not TOML: .*overwrite"),
    "deeper than a plan goes": ("steps = " + "[" * 100_000, "not TOML: "),
    "a later version": ("tightbudget = 2\n" + GOOD, r"\(the version\) must be 1, got 2"),
    "a version that is no number": ("tightbudget = true\n" + GOOD, "must be 1, got True"),
    "an unknown key at the top": ("delta = 1e-5\n" + GOOD, r"\[\[steps\]\] only, got 'delta'"),
    "steps that are no list": ('steps = "all"', "steps must be a list, got 'all'"),
    "a step that is no table": ("steps = [1]", r"steps\[0\] must be a table, got 1"),
    "no mechanism": ("[[steps]]\nsigma = 1.0", r"steps\[0\]\.mechanism must be one of .*got None"),
    "a mechanism that is no word": (
        "[[steps]]\nmechanism = 7",
        r"steps\[0\]\.mechanism must be one of .*got 7",
    ),
    "an unknown mechanism": (
        GOOD + '[[steps]]\nmechanism = "gausian"',
        r"steps\[1\]\.mechanism must be one of .*gaussian.*, got 'gausian'",
    ),
    "an unknown parameter": (GOOD + "scale = 1.0", r"steps\[0\].* no parameter 'scale'"),
    "a missing parameter": ('[[steps]]\nmechanism = "gaussian"', r"steps\[0\].* needs sigma"),
    "a refused parameter": (
        '[[steps]]\nmechanism = "gaussian"\nsigma = -1.0',
        r"sigma must be a finite number > 0, got -1\.0",
    ),
    "not a number": (
        '[[steps]]\nmechanism = "gaussian"\nsigma = nan',
        "sigma must be a finite number > 0, got nan",
    ),
    "a parameter of another type": (
        '[[steps]]\nmechanism = "gaussian"\nsigma = "1.0"',
        "sigma must be a finite number > 0, got '1.0'",
    ),
    "a date": (
        '[[steps]]\nmechanism = "gaussian"\nsigma = 2001-01-01',
        "sigma must be a finite number > 0, got datetime",
    ),
    "a rate beyond 1": (GOOD + "rate = 1.5", r"rate must be in .*, got 1\.5"),
    "times that are no integer": (GOOD + "times = 1e3", r"steps\[0\]\.times must be an integer"),
    "negative times": (GOOD + "times = -1", r"times must be an integer >= 0, got -1"),
    "an unknown relation": (GOOD + 'relation = "friends"', "relation must be one of .*'friends'"),
    "two relations": (
        GOOD + 'relation = "zero-out"\n[[steps]]\nmechanism = "gaussian"\nsigma = 1.0\nrate = 0.1',
        "ZERO_OUT and for .*ADD_OR_REMOVE do not compose",
    ),
    "binary": (b"\x80\x03\xff\x00garbage", r"not UTF-8 text \(byte 0\)"),
    "a null character": (b"steps = \x00", "not TOML: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_plan_is_refused_with_path_and_reason(name: str, tmp_path: Path) -> None:
    content, reason = REFUSED[name]
    path = plan(tmp_path, content)
    with pytest.raises(tb.errors.FileError, match=reason) as refusal:
        tb.read_plan(path)
    assert str(refusal.value).startswith(f"{path}: ")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(tb.errors.FileError, match=r"none\.toml: no such file or directory"):
        tb.read_plan(tmp_path / "none.toml")
    with pytest.raises(tb.errors.FileError, match="is a directory"):
        tb.read_plan(tmp_path)
    with pytest.raises(tb.errors.FileError, match="null"):
        tb.read_plan("a\0b")


@pytest.mark.parametrize("damage", [lambda raw: b"steps", lambda raw: raw[:-9], lambda raw: b""])
def test_a_broken_gzip_is_refused(damage, tmp_path: Path) -> None:
    path = plan(tmp_path, damage(gzip.compress(GOOD.encode())), "plan.toml.gz")
    with pytest.raises(
        tb.errors.FileError, match=r"plan\.toml\.gz: (not a whole gzip file|a plan needs)"
    ):
        tb.read_plan(path)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tb.errors.FileError, match="no such file or directory"):
        tb.write_plan(MIXED, tmp_path / "nowhere" / "plan.toml")
    with pytest.raises(tb.errors.FileError, match="is a directory"):
        tb.write_plan(MIXED, tmp_path)
    with pytest.raises(tb.errors.FileError, match="null"):
        tb.write_plan(MIXED, "a\0b")


def test_a_rate_may_be_a_quotient_of_integers(tmp_path: Path) -> None:
    path = plan(tmp_path, GOOD + 'rate = "256/60000"')
    sampled = tb.Gaussian(1.0).subsampled(256 / 60000)
    assert tb.read_plan(path) == sampled * 1
    tb.write_plan(sampled * 1, path)
    assert tb.read_plan(path) == sampled * 1
    path = plan(tmp_path, GOOD + 'rate = "1%"')
    with pytest.raises(
        tb.errors.FileError, match=r"rate must be in \[0, 1\], got '1%' \(write 0\.01\)"
    ):
        tb.read_plan(path)
