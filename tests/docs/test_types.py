"""The code of README and of the pages passes two type checkers, as it does in a reader's editor."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from docs import examples

pytestmark = pytest.mark.slow  # two type checkers read the whole package

# The first code that a reader types: nothing in it may lack a type.
STRICT = ("README", "docs__tutorial")
# Pages that are not checked, each for a reason that lies in what they show.
LOOSE = {
    "docs__explanation__propose_test_release": "keyword arguments from a dict of numbers",
    "docs__how_to__answer_from_data": "an answer is a number or an array, by its size",
    "docs__how_to__ask_many_questions": "a list that is empty at first",
    "docs__how_to__calibrate_noise": "it shows the answer to a mistake that a checker finds",
    "docs__how_to__compare_with_other_bounds": "a row may be an estimate, or have no answer",
    "docs__how_to__release_a_model": "scikit-learn has no types of its own",
    "docs__how_to__release_with_change": "scikit-learn has no types of its own",
    "docs__how_to__stop_early": "a loop that may be empty",
    "docs__how_to__use_with_dp_accounting": "a part is a mechanism of any type",
    "docs__how_to__use_with_flower": "a strategy is a class of Flower, which is not installed",
    "docs__how_to__use_with_hugging_face": "classes of transformers, which is not installed",
    "docs__how_to__use_with_nvflare": "a filter is a class of NVFlare, which is not installed",
    "docs__how_to__use_with_opacus": "Opacus's accountants have no bounds",
    "docs__how_to__use_with_opendp": "OpenDP's prelude and its queries have no types of their own",
    "docs__how_to__use_with_opendp_polars": "OpenDP's names for Polars are known to no checker",
    "docs__how_to__use_with_scikit_learn": "scikit-learn has no types of its own",
    "docs__problems__release_tables": "an answer is a number or an array, by its size",
}


# A keyword that is misspelt, and a step that is counted in halves: both checkers have to see them.
MISTAKES = """
import tightbudget as tb

run = tb.Gaussian(1.0).subsampled(0.01) * 1000
run.epsilon(dleta=1e-5)
run * 0.5
found = tb.calibrate(lambda k: run * k, epsilon=1.0, delta=1e-5, integer=True)
(run * found.value + tb.Laplace(1.0)).delta(1.0).upper + 1.0
"""


SEEN = {("mistakes", "5"), ("mistakes", "6")}


def found_in(said: str, pattern: str) -> set[tuple[str, str]]:
    """The programs and lines in which a checker has found an error."""
    return {(found[1], found[2]) for found in re.finditer(pattern, said, re.MULTILINE)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program for each page: its blocks in order."""
    folder = tmp_path_factory.mktemp("programs")
    for page in examples.pages():
        text = page.read_text(encoding="utf-8")
        blocks = [block[2] for block in examples.BLOCK.finditer(text) if block[1] == "python"]
        place = page.relative_to(examples.ROOT).with_suffix("").as_posix()
        name = re.sub(r"\W", "_", place.replace("/", "__"))
        if blocks and name not in LOOSE:
            (folder / f"{name}.py").write_text("\n".join(blocks), encoding="utf-8")
    assert {path.stem for path in folder.iterdir()} >= {*STRICT}
    (folder / "mistakes.py").write_text(MISTAKES, encoding="utf-8")
    return folder


def test_the_pages_pass_mypy(programs: Path) -> None:
    strict = ",".join(STRICT)
    (programs / "mypy.ini").write_text(
        textwrap.dedent(f"""
            [mypy]
            strict = True
            disallow_untyped_defs = False
            disallow_incomplete_defs = False
            disallow_untyped_calls = False
            ignore_missing_imports = True
            [mypy-{strict}]
            disallow_untyped_defs = True
            disallow_incomplete_defs = True
            disallow_untyped_calls = True
        """),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--python-executable"]
    done = subprocess.run(
        [*command, sys.executable, "."], cwd=programs, capture_output=True, text=True, check=False
    )
    assert found_in(done.stdout, r"^(\w+)\.py:(\d+): error") == SEEN, done.stdout


def test_the_pages_pass_pyright(programs: Path) -> None:
    checker = Path(sys.executable).parent / "basedpyright"
    config = {
        "include": ["."],
        "typeCheckingMode": "standard",
        "reportUnusedExpression": False,  # an expression whose value a page shows
        "reportMissingImports": False,  # a neighbour that is not installed
        "reportMissingModuleSource": False,
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [str(checker), "--pythonpath", sys.executable, "-p", str(programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found_in(done.stdout, r"(\w+)\.py:(\d+):\d+ - error") == SEEN, done.stdout
