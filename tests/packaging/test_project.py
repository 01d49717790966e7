"""The files that people and services read before they run anything agree with one another.

What no program here reads (workflows, a container, forms for issues) is parsed, and held to what it
names: targets of the Makefile, routes, files, versions. ``make schemas`` checks their schemas.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tightbudget as tb
from tightbudget.links import DOCUMENTATION, REPOSITORY

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PARSED = [
    *sorted(GITHUB.rglob("*.yml")),
    ROOT / ".pre-commit-config.yaml",
    ROOT / "compose.yaml",
    ROOT / "CITATION.cff",
]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
CITATION = parsed(ROOT / "CITATION.cff")


# ----------------------------------------------------------------- versions and addresses


def released() -> tuple[str, str]:
    """Version and date of the newest release in the changelog."""
    found = re.search(
        r"^## \[(\d[^\]]*)\] - (\d{4}-\d\d-\d\d)$", text("CHANGELOG.md"), re.MULTILINE
    )
    assert found is not None
    return found[1], found[2]


def test_all_files_name_one_version() -> None:
    version, date = released()
    assert {version} == {
        tb.__version__,
        PROJECT["version"],
        CITATION["version"],
        parsed(ROOT / "compose.yaml")["services"]["server"]["image"].split(":")[1],
    }
    assert str(CITATION["date-released"]) == date


def test_the_changelog_has_unreleased_changes_first_and_a_link_for_each_version() -> None:
    changes = text("CHANGELOG.md")
    versions = re.findall(r"^## \[([^\]]+)\]", changes, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1:] == sorted(versions[1:], reverse=True)
    assert re.findall(r"^\[([^\]]+)\]: ", changes, re.MULTILINE) == versions
    for version in versions[1:]:
        assert f"\n[{version}]: {REPOSITORY}/releases/tag/v{version}\n" in changes


def test_the_upgrading_page_speaks_of_the_newest_version() -> None:
    assert f"## To {released()[0]}\n" in text("docs/upgrading.md")


def test_metadata_name_the_addresses_of_links() -> None:
    assert PROJECT["urls"]["Documentation"] == DOCUMENTATION == CITATION["url"]
    assert PROJECT["urls"]["Source"] == REPOSITORY == CITATION["repository-code"]
    for address in PROJECT["urls"].values():
        assert address.startswith((DOCUMENTATION, REPOSITORY))


@pytest.mark.parametrize(
    "name", ["README.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs/upgrading.md"]
)
def test_every_address_of_the_project_is_one_of_links(name: str) -> None:
    for address in re.findall(r"https://[^\s()\"<>]*tightbudget[^\s()\"<>]*", text(name)):
        assert address.startswith((DOCUMENTATION, REPOSITORY)), address


def test_the_citation_has_what_its_format_requires() -> None:
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "license"} <= CITATION.keys()
    assert CITATION["license"] == PROJECT["license"]
    assert all("name" in author or "family-names" in author for author in CITATION["authors"])


def test_every_supported_python_of_the_metadata_is_in_the_matrix() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = {c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)}
    jobs = parsed(GITHUB / "workflows" / "ci.yml")["jobs"]
    tested = set(jobs["pythons"]["strategy"]["matrix"]["python"])
    assert {f"3.{minor}" for minor in named} <= tested
    assert PROJECT["requires-python"] == f">={min(tested, key=lambda v: int(v[2:]))}"


# ------------------------------------------------------------------------------ workflows


@pytest.mark.parametrize("path", PARSED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_for_a_service_parses(path: Path) -> None:
    assert isinstance(parsed(path), dict)


def jobs() -> Iterator[dict[str, Any]]:
    for path in WORKFLOWS:
        yield from parsed(path)["jobs"].values()


def commands() -> list[str]:
    """What the steps of all workflows run."""
    return [step["run"] for job in jobs() for step in job["steps"] if "run" in step]


def test_a_workflow_runs_what_continuous_integration_runs() -> None:
    assert ".ci/run" in commands()
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_workflows_name_targets_that_the_makefile_has() -> None:
    named = {name for line in commands() for name in re.findall(r"^make (\w+)", line)}
    assert {"unit", "package", "sbom", "audit", "schemas"} <= named
    for name in named | set(re.findall(r"\bmake (\w+)", text(".ci/run"))) - {"clean"}:
        assert re.search(rf"^{name}:.*## ", text("Makefile"), re.MULTILINE), name


def test_actions_are_pinned_by_version_and_may_only_read() -> None:
    for path in WORKFLOWS:
        assert parsed(path)["permissions"] == {"contents": "read"}
    uses = [step["uses"] for job in jobs() for step in job["steps"] if "uses" in step]
    assert uses
    for action in uses:
        assert re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", action), action
    assert all("timeout-minutes" in job for job in jobs())


def test_hooks_before_a_commit_are_the_tools_of_the_lock() -> None:
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert {hook["id"] for hook in repository["hooks"]} >= {"ruff", "ruff-format", "mypy"}
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/python -m ")


def test_the_first_form_is_that_for_unsound_answers() -> None:
    first = min((GITHUB / "ISSUE_TEMPLATE").glob("[0-9]*.yml"))
    fields = {field.get("id"): field for field in parsed(first)["body"]}
    for name in ("mechanism", "call", "answer", "truth"):
        assert fields[name]["validations"]["required"], name
    assert f"issues/new?template={first.name}" in text("SECURITY.md")


def test_the_security_policy_names_what_must_not_happen() -> None:
    policy = text("SECURITY.md")
    for kind in ("upper bound below the truth", "lost charge", "nobody paid for", "token"):
        assert kind in policy
    assert f"{REPOSITORY}/security/advisories/new" in policy


# ------------------------------------------------------------------------------ container

DOCKERFILE = text("Dockerfile")


def test_the_container_copies_what_is_there_and_what_is_not_ignored() -> None:
    let_in = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
            assert name in let_in, name


def test_the_container_serves_as_somebody_who_is_not_root_and_makes_no_ledger() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER (?!root)\w+$", last, re.MULTILINE)
    assert last.index("\nUSER ") < last.index("\nENTRYPOINT ")
    assert re.search(r"^VOLUME /data$", last, re.MULTILINE)
    assert "sqlite:////data/" in last
    assert "init" not in last.rpartition("\nENTRYPOINT ")[2]


def test_the_container_asks_a_route_that_needs_no_token() -> None:
    from fastapi.routing import APIRoute

    from tightbudget.web.api.about import router

    (asked,) = re.findall(r"http://127\.0\.0\.1:8000(/[\w/]*)", DOCKERFILE)
    assert asked in {route.path for route in router.routes if isinstance(route, APIRoute)}
    assert asked in text(".github/workflows/ci.yml")


def test_the_container_is_installed_from_hashes_and_asks_no_index_for_the_package() -> None:
    assert "--no-deps --require-hashes -r requirements/serve.txt" in DOCKERFILE
    assert "--no-deps --no-build-isolation --no-index ." in DOCKERFILE
    lock = text("requirements/serve.txt")
    for extra in ("web", "postgresql"):
        for needed in PROJECT["optional-dependencies"][extra]:
            name = re.split(r"[\[>=]", needed)[0]
            assert re.search(rf"^{name}==", lock, re.MULTILINE | re.IGNORECASE), name


@pytest.mark.parametrize("lock", ["demo", "serve", "test"])
def test_a_lock_names_all_that_what_it_names_requires(lock: str) -> None:
    # They are installed with --no-deps: what a lock forgets would be missing.
    pins = dict(
        re.findall(r"^([\w.-]+)==([^\s;]+)", text(f"requirements/{lock}.txt"), re.MULTILINE)
    )
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    waiting = [(name, "") for name in pins]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        for line in importlib.metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": extra}):
                continue
            found = canonicalize_name(needed.name)
            assert found in pins, (name, line)
            assert needed.specifier.contains(pins[found], prereleases=True), (name, line)
            new = {(found, extra) for extra in ("", *needed.extras)} - seen
            seen |= new
            waiting += new


def test_composed_services_hold_no_password_and_listen_on_this_machine_alone() -> None:
    services = parsed(ROOT / "compose.yaml")["services"]
    secret = services["database"]["environment"]["POSTGRES_PASSWORD"]
    assert secret.startswith("${POSTGRES_PASSWORD:?")
    server = services["server"]
    assert server["environment"]["PGPASSWORD"] == secret
    assert "password" not in server["environment"]["TIGHTBUDGET_LEDGER"]
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert "ports" not in services["database"]
    assert services["tables"]["command"] == ["ledger", "init"]
    assert server["depends_on"]["tables"]["condition"] == "service_completed_successfully"


def test_the_development_container_is_made_by_the_makefile() -> None:
    container = json.loads(text(".devcontainer/devcontainer.json"))
    assert container["postCreateCommand"] == "make env"
    assert container["image"].partition(":")[2].startswith(PROJECT["requires-python"][2:])


def test_the_conda_recipe_says_what_the_project_says() -> None:
    recipe, project = parsed(ROOT / "conda/recipe.yaml"), PROJECT
    builds = tomllib.loads(text("pyproject.toml"))["build-system"]["requires"]
    python = f"python {project['requires-python']}"
    assert recipe["context"]["version"] == tb.__version__
    assert recipe["package"]["name"] == project["name"]

    def spaced(needed: list[str]) -> set[str]:
        return {one.replace(">=", " >=") for one in needed}

    needs = recipe["requirements"]
    assert {*needs["run"]} == {python, *spaced(project["dependencies"])}
    assert {*needs["host"]} == {python, "pip", *spaced(builds)}
    scripts = [f"{name} = {where}" for name, where in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    about = recipe["about"]
    assert about["summary"] == project["description"]
    assert about["license"] == project["license"]
    assert about["license_file"] in project["license-files"]
    assert about["homepage"] == project["urls"]["Documentation"]
    assert about["repository"] == project["urls"]["Source"]
