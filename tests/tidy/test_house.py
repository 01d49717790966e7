"""The rules of the house that no off-the-shelf tool checks.

Each rule is a small function from one parsed module to the lines that break it, so that
the rule itself can be shown a module that breaks it: a guard that cannot turn red guards
nothing.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tightbudget"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

Rule = Callable[[ast.Module], Iterator[int]]


# ---------------------------------------------------------------------------- rules


def imported(node: ast.AST) -> list[str]:
    """Full dotted names that an import statement brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def dotted(node: ast.AST) -> str:
    """`np.random.normal` for the attribute chain of that name, and '' for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


def draws_randomness(module: ast.Module) -> Iterator[int]:
    sources = ("random", "secrets", "numpy.random", "os.urandom")
    for node in ast.walk(module):
        for name in imported(node):
            if any(name == source or name.startswith(f"{source}.") for source in sources):
                yield node.lineno  # type: ignore[attr-defined]
        if dotted(node) in {"np.random", "numpy.random", "os.urandom"}:
            yield node.lineno  # type: ignore[attr-defined]
        # scipy.stats hides its draws behind a method.
        if isinstance(node, ast.Attribute) and node.attr == "rvs":
            yield node.lineno


def steps_between_floats(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if any(name.endswith(".nextafter") for name in imported(node)):
            yield node.lineno  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and node.attr == "nextafter":
            yield node.lineno


def prints(module: ast.Module) -> Iterator[int]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and dotted(node.func) == "print":
            yield node.lineno


def enters_by_the_front_door(module: ast.Module) -> Iterator[int]:
    """A room that imports the package itself has every floor above it underneath."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import) and any(a.name == "tightbudget" for a in node.names):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "tightbudget":
            rooms = {path.stem for path in PACKAGE.iterdir()}
            if any(alias.name not in rooms for alias in node.names):
                yield node.lineno


# Each rule, where it does not apply (a file, or a room with a trailing slash), and why.
RULES: dict[str, tuple[Rule, tuple[str, ...], str]] = {
    "randomness": (
        draws_randomness,
        # a password that nobody can guess is random, too; no answer depends on it
        (
            "release/noise/noise.py",
            "release/noise/salt.py",
            "promises/secret.py",
            "web/sessions.py",
            "web/settings.py",
            # synthetic rows are drawn from what was released
            "marginals/tree_model.py",
        ),
        "only release/noise draws randomness: take a noise source as an argument",
    ),
    "nextafter": (
        steps_between_floats,
        ("numerics/rounding.py",),
        "the step from one float to the next is made in numerics/rounding.py: use add_up, ...",
    ),
    "print": (
        prints,
        ("cli/", "__main__.py"),
        "only cli talks to a terminal: return a value, or raise",
    ),
    "front-door": (
        enters_by_the_front_door,
        ("cli/", "web/", "explorer/", "adapters/", "__main__.py"),
        "rooms import rooms (tightbudget.numerics), not the package that gathers them",
    ),
}


@functools.cache
def parsed(path: str) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RULES)
def test_every_module_keeps_the_rule(name: str) -> None:
    rule, exempt, reason = RULES[name]
    broken = [
        f"src/tightbudget/{path}:{line}"
        for path in MODULES
        if not path.startswith(exempt)
        for line in sorted(set(rule(parsed(path))))
    ]
    assert not broken, f"{reason}\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("randomness", "import random"),
        ("randomness", "from random import gauss"),
        ("randomness", "import secrets"),
        ("randomness", "import numpy.random"),
        ("randomness", "from numpy import random"),
        ("randomness", "from numpy.random import default_rng"),
        ("randomness", "import numpy as np\nnp.random.default_rng(0)"),
        ("randomness", "import os\nos.urandom(8)"),
        ("randomness", "from scipy.stats import norm\nnorm.rvs(size=3)"),
        ("nextafter", "from math import nextafter"),
        ("nextafter", "import numpy as np\nnp.nextafter(1.0, 2.0)"),
        ("print", "print('hello')"),
        ("front-door", "import tightbudget"),
        ("front-door", "from tightbudget import Bounds"),
    ],
)
def test_the_rule_sees_a_module_that_breaks_it(name: str, code: str) -> None:
    assert list(RULES[name][0](ast.parse(code)))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("randomness", "from tightbudget.pairs import randomized_response"),
        ("nextafter", "'''Rounds with nextafter, elsewhere.'''"),
        ("print", "def fingerprint(): ...\nfingerprint()"),
        ("front-door", "from tightbudget.numerics import Bounds"),
    ],
)
def test_the_rule_lets_an_innocent_module_pass(name: str, code: str) -> None:
    assert not list(RULES[name][0](ast.parse(code)))


# ---------------------------------------------------------------------- private names

# `x._run`, and neither `self._run` nor a name that a notebook calls, `x._repr_html_`
ASKED = re.compile(r"(?<!\bself)(?<!\bcls)\.(_[a-z]\w*[a-z0-9])\b")
AT_HOME = re.compile(r"(?<![\w.])(?:(?:self|cls)\.)?(_[a-z]\w*)")
IMPORTED = re.compile(r"^from tightbudget\.(\w+)[\w.]* import (\([^)]*\)|.*)$", re.MULTILINE)
PUBLIC_ALL_THE_SAME = {
    *("_asdict", "_fields", "_make", "_replace"),  # of a named tuple
    "_in_both_orders",  # of a composition, which adapters and comparisons ask beside the engine
    "_session",  # of Ibis on Spark
}
# Hooks that subclasses in any room write, and their base calls alone.
HOOKS = {"_run", "_admitted"}


def private_names_of_other_rooms(texts: dict[str, str]) -> Iterator[str]:
    """Files that name something private which some other room knows, and their own does not."""
    rooms: dict[str, set[str]] = {}
    for path, text in texts.items():
        rooms.setdefault(path.partition("/")[0], set()).update(AT_HOME.findall(text))
    for path, text in texts.items():
        room = path.partition("/")[0]
        others = set().union(*(names for other, names in rooms.items() if other != room))
        for name in {*ASKED.findall(text)} - PUBLIC_ALL_THE_SAME:
            if name in others - rooms[room] | (HOOKS if room != "release" else set()):
                yield f"{path}: {name}"
        for other, names in IMPORTED.findall(text):
            if other != room:
                yield from (f"{path}: {name}" for name in re.findall(r"(?<!\w)_[a-z]\w*", names))


def test_no_room_calls_a_private_name_of_another() -> None:
    texts = {path: (PACKAGE / path).read_text(encoding="utf-8") for path in MODULES}
    found = list(private_names_of_other_rooms(texts))
    assert not found, "private names of another room: ask for a public one\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return x._run(1)",
        "def f(): return Kernel(1)._run",
        "from tightbudget.release.kernel import Kernel, _law",
        "from tightbudget.release.kernel import (\n    Kernel,\n    _law,\n)",
    ],
)
def test_a_private_name_of_another_room_is_seen(code: str) -> None:
    other = "class Kernel:\n    def _run(self, x): ...\ndef _law(): ..."
    texts = {"release/kernel.py": other, "tables/sum.py": code}
    assert list(private_names_of_other_rooms(texts))
    at_home = {"release/kernel.py": other, "release/sum.py": code}
    assert not list(private_names_of_other_rooms(at_home))


def test_a_hook_is_called_by_its_base_alone() -> None:
    code = "class Mine(Kernel):\n    def _run(self, x): return x._run(1)"
    assert list(private_names_of_other_rooms({"tables/sum.py": code}))


# ----------------------------------------------------------------------------- papers


def beyond_the_public_names(module: ast.Module) -> Iterator[int]:
    """What a reader of a paper's scripts would have to know beside `import tightbudget`."""
    import tightbudget

    known = {*sys.stdlib_module_names, "numpy", "matplotlib", "papers"}
    public = {"tightbudget", *(f"tightbudget.{name}" for name in tightbudget.__all__)}
    for node in ast.walk(module):
        for name in imported(node):
            if name.partition(".")[0] not in known and name not in public:
                yield node.lineno  # type: ignore[attr-defined]


def test_papers_need_the_public_names_alone() -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "papers").rglob("*.py"))
        for line in beyond_the_public_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not broken, "papers/ shows what the public names can do: import tightbudget\n" + (
        "\n".join(broken)
    )


@pytest.mark.parametrize(
    "code",
    ["import scipy", "import tightbudget.pld", "from tightbudget.pld import grid",
     "from tightbudget import pld"],
)  # fmt: skip
def test_papers_that_need_more_are_seen(code: str) -> None:
    assert list(beyond_the_public_names(ast.parse(code)))


def test_papers_that_do_not_need_more_pass() -> None:
    code = "import json\nimport tightbudget as tb\nfrom tightbudget import Bounds"
    assert not list(beyond_the_public_names(ast.parse(code)))


# ----------------------------------------------------------------------- public names


def documented(name: str, value: object) -> bool:
    """A docstring of its own: not inherited, and not the one a dataclass writes itself."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return True  # a constant or a type alias: its comment stands beside it
    doc = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
    return bool(doc.strip()) and not doc.startswith(f"{name}(")


def test_every_public_name_exists_and_has_a_docstring() -> None:
    import tightbudget

    assert len(set(tightbudget.__all__)) == len(tightbudget.__all__)
    silent = [
        name for name in tightbudget.__all__ if not documented(name, getattr(tightbudget, name))
    ]
    assert not silent, f"public names without a docstring: {silent}"


def methods(kind: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that stand in a class of this package."""
    for name, value in vars(kind).items():
        said = inspect.isroutine(value) or isinstance(value, (property, functools.cached_property))
        if said and not name.startswith("_"):
            yield name, getattr(kind, name)


def test_every_method_of_a_public_class_has_a_docstring_of_its_own_or_of_a_base() -> None:
    from docs.building.public import public

    kinds = [kind for path in public().values() if inspect.isclass(kind := pydoc.locate(path))]
    silent = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, value in methods(kind)
        if not inspect.getdoc(value)
    ]
    assert len(kinds) > 100
    assert not silent, f"methods without a docstring: {silent}"


def test_importing_the_package_leaves_the_heavy_neighbours_alone() -> None:
    """Plots, terminals and other people's accountants load when they are used."""
    code = (
        "import sys, tightbudget; print(*sorted({'.'.join(m.split('.')[:2]) for m in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"matplotlib", "typer", "rich", "dp_accounting", "opacus", "opendp", "sklearn"}
    heavy |= {"sqlalchemy", "alembic", "psycopg", "pandas", "polars"}
    heavy |= {f"scipy.{name}" for name in ("stats", "signal", "optimize", "interpolate")}
    heavy |= {"fastapi", "starlette", "uvicorn", "jinja2", "httpx", "itsdangerous"}
    assert "tightbudget" in loaded
    assert not heavy & set(loaded)


# ------------------------------------------------------------------------------ files

LEFT_BY_TOOLS = {"build", "dist", "out", "site", "htmlcov", "__pycache__"}
SERVED = {".ci", ".devcontainer", ".github"}  # hidden folders that services read
MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:work|root|home)/")


def files_of_the_house(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name not in SERVED
            if not hidden and path.name not in LEFT_BY_TOOLS:
                yield from files_of_the_house(path)
        elif path.name != ".git" and not path.name.startswith(".coverage"):
            yield path


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = []
    for path in files_of_the_house():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert not found, "paths of one machine, which no other has:\n" + "\n".join(found)


def test_the_search_for_machine_paths_finds_one_and_spares_addresses() -> None:
    assert MACHINE_PATH.search('open("/work/data.csv")')
    assert MACHINE_PATH.search("cd /home/ada/tightbudget")
    assert not MACHINE_PATH.search("https://example.org/work/paper.pdf")
    assert not MACHINE_PATH.search("papers/work/figure_1.py")
