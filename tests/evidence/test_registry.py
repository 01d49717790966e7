"""Draft records for the registry: valid, marked where a person must write, read back as written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import tightbudget as tb
from tightbudget.cli import app
from tightbudget.errors import LedgerCorruptError
from tightbudget.evidence import PrivacyStatement, Section, statement_of_budget, statement_of_run
from tightbudget.evidence.loaders import NOT_KNOWN
from tightbudget.evidence.registry import to_yaml
from tightbudget.evidence.statement import SAID

yaml = pytest.importorskip("yaml")
jsonschema_rs = pytest.importorskip("jsonschema_rs")


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required or properties),
    }


def words(*of: str) -> dict[str, Any]:
    return {"enum": list(of)}


TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
NUMBER: dict[str, Any] = {"type": "number"}

# The registry's rules for a record, as its records of September 2026 keep them.
SCHEMA = fields(
    url_slug={"type": "string", "pattern": "^[a-z0-9-]+$"},
    status=words("Converted", "Draft", "Pending", "Changes Required", "Approved"),
    tier=words(1, 2, 3),  # type: ignore[arg-type]
    deployment=fields(
        basic=fields(
            name=TEXT,
            data_curators={
                "type": "array",
                "minItems": 1,
                "items": fields(data_curator_name=TEXT, data_curator_type=TEXT),
            },
            intended_use=TEXT,
            data_product_type=words(
                "Summary statistics", "Machine learning model", "Dataset", "Synthetic data",
                "Interactive API", "SQL queries",
            ),
            data_product_region=TEXT,
            description=TEXT,
            publication_date={"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        ),
        dp_variant=fields(
            variant_name=words(
                "Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"
            ),
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=fields(
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            privacy_parameters={
                **fields(epsilon=NUMBER, delta=NUMBER, rho=NUMBER),
                "required": [],
            },
            privacy_parameters_details=TEXT,
        ),
        deployment_model=fields(
            model_name=words("Local", "Central", "Shuffle", "Federated", "Varies"),
            actors=TEXT,
            release_type=words("One release", "Many releases"),
            release_type_details=TEXT,
            data_source_type=words("Static", "Dynamic"),
            access_type=words("Interactive", "Non-interactive"),
            access_type_details=TEXT,
        ),
        accounting=fields(post_processing=TEXT, composition=TEXT),
        implementation=fields(
            preprocessing_and_hyperparameter_tuning=TEXT, mechanisms=TEXT, justification=TEXT
        ),
        administrative=fields(
            sources=TEXT,
            notes=TEXT,
            registry_authors={"type": "array", "minItems": 1, "items": TEXT},
        ),
    ),
)  # fmt: skip


def read(text: str) -> Any:
    """The record, after the registry's own checks of its form and of its quotes."""
    record = yaml.safe_load(text)
    jsonschema_rs.validate(SCHEMA, record)
    for token in yaml.scan(text):
        assert getattr(token, "style", None) in (None, "|", '"', "'")
    return record


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    if isinstance(node, dict | list):
        found = node.items() if isinstance(node, dict) else enumerate(node)
        return {p: v for key, value in found for p, v in leaves(value, f"{path}.{key}").items()}
    return {path.removeprefix(".deployment."): node}


def test_the_record_of_a_run_has_its_upper_bound_and_marks_what_a_person_must_write() -> None:
    run = tb.Gaussian(1.0).subsampled(0.01) * 1000
    text = statement_of_run(run, delta=1e-5).to_registry()
    found = leaves(read(text))
    upper = run.epsilon(1e-5).upper
    assert found["dp_variant.variant_name"] == "Approximate DP"
    assert found["privacy_loss.privacy_parameters.epsilon"] == upper
    assert found["privacy_loss.privacy_parameters.delta"] == 1e-5
    assert str(run.epsilon(1e-9)) in found["privacy_loss.privacy_parameters_details"]
    to_write = {path for path, text in found.items() if str(text).startswith("TODO: ")}
    assert to_write == {
        *("basic." + name for name in ("name", "intended_use", "data_product_region")),
        *("basic.description", "basic.data_curators.0.data_curator_name"),
        *("basic.data_curators.0.data_curator_type", "dp_variant.data_domain"),
        *("dp_variant.unprotected_quantities", "privacy_loss.privacy_unit"),
        *("deployment_model." + name for name in ("actors", "release_type_details")),
        *("deployment_model.access_type_details", "accounting.post_processing"),
        "implementation.preprocessing_and_hyperparameter_tuning",
        *("implementation.justification", "administrative.sources"),
        "administrative.registry_authors.0",
    }
    assert text.count("# TODO: check") == 6
    assert NOT_KNOWN not in text


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_is_in_the_record(name: str) -> None:
    text = statement_of_run(tb.Laplace(1.0), delta=1e-5, **{name: "as we believe"}).to_registry()
    assert any("as we believe" in str(text) for text in leaves(read(text)).values())


TERMS = [
    ("output_dp", {"epsilon": 1.0}, "Pure DP", {"epsilon": 1.0}),
    ("output_dp", {"epsilon": 1.0, "delta": 1e-6}, "Approximate DP", {"epsilon": 1, "delta": 1e-6}),
    ("zcdp", {"rho": 1.0}, "Zero-concentrated DP", {"rho": 1.0}),
    ("gaussian_dp", {"mu": 2.0}, "Custom", {}),
]


@pytest.mark.parametrize(("kind", "terms", "variant", "parameters"), TERMS)
def test_a_budget_is_its_cap(
    tmp_path: Path, kind: str, terms: Any, variant: str, parameters: Any
) -> None:
    with tb.Ledger(f"sqlite:///{tmp_path / 'a.db'}") as ledger:
        ada = ledger.open_budget("ada", kind=kind, **terms)
        record = read(statement_of_budget(ledger, "ada").to_registry())["deployment"]
        assert record["dp_variant"]["variant_name"] == variant
        assert record["privacy_loss"]["privacy_parameters"] == parameters
        assert str(ledger.head()) in record["deployment_model"]["release_type_details"]
        if variant == "Custom":
            record = read(statement_of_budget(ledger, "ada", delta=1e-6).to_registry())
            assert record["deployment"]["dp_variant"]["variant_name"] == "Approximate DP"
            found = record["deployment"]["privacy_loss"]["privacy_parameters"]
            assert found == {"epsilon": ada.epsilon(1e-6), "delta": 1e-6}


def test_a_budget_that_is_closed_is_its_cap_too(tmp_path: Path) -> None:
    """A run that could have cost 0.3, and whose output cost 0.1, is not 0.1-private."""
    with tb.Ledger(f"sqlite:///{tmp_path / 'a.db'}") as ledger:
        ada = ledger.open_budget("ada", epsilon=1.0, delta=1e-6)
        hold = ada.reserve("A1", tb.OutputDP({"yes": 0.3, "no": 0.1}))
        hold.start()
        hold.settle("no")
        ada.close()
        found = statement_of_budget(ledger, "ada")
    assert dict(found.sections[0].rows)["spent"] == "epsilon 0.1, delta 0.0"
    assert (found.variant, found.parameters) == ("Approximate DP", {"epsilon": 1.0, "delta": 1e-6})


def test_no_record_is_made_where_no_epsilon_holds() -> None:
    statement = statement_of_run(tb.TruncatedGaussian(1.0, bound=3.0) * 100, delta=1e-9)
    with pytest.raises(tb.ParameterError, match="delta must be one at which an epsilon holds"):
        statement.to_registry()


def test_a_table_says_what_its_units_are(tmp_path: Path) -> None:
    people = tb.Table({"who": np.array(["a", "b"]), "x": np.arange(2)}, unit="who", rows_per_unit=3)
    with tb.Ledger(f"sqlite:///{tmp_path / 'a.db'}") as ledger:
        ledger.open_budget("ada", epsilon=1.0)
        known = statement_of_budget(ledger, "ada", table=people).sections[1].rows
        said = statement_of_budget(ledger, "ada", table=people, unit="a person").sections[1].rows
        rows = statement_of_budget(ledger, "ada", table=tb.Table({"x": np.arange(2)})).sections[1]
        with pytest.raises(tb.ParameterError, match=r"^table must be a tb\.Table, got 3$"):
            statement_of_budget(ledger, "ada", table=3)  # type: ignore[arg-type]
    assert dict(known) == {
        "whom one unit is": "all rows with the same who (declared)",
        "neighbouring data sets": "one has all rows of the other, and all rows of one unit more "
        "(declared)",
        "bound on what one unit contributes, and how it is kept": "at most 3 rows, in at most 3 "
        "groups; which ones is drawn anew for each answer (declared)",
        "declared to be public": "the names and types of columns alone",
    }
    assert dict(said)["whom one unit is"] == "said: a person"
    assert len(said) == 4
    assert dict(rows.rows)["whom one unit is"] == "each row (declared)"


def test_no_record_is_made_from_a_ledger_that_does_not_verify() -> None:
    with pytest.raises(LedgerCorruptError, match="no record is made from this statement: broken"):
        PrivacyStatement("budget ada", (), "broken").to_registry()


def test_the_command_writes_the_record(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with tb.Ledger(url) as ledger:
        ledger.open_budget("ada", epsilon=1.0)
        expected = statement_of_budget(ledger, "ada", unit="one patient").to_registry()
    arguments = ["ledger", "statement", "ada", "--say", "unit=one patient", "--as", "registry"]
    found = CliRunner().invoke(app, [*arguments, "--ledger", url])
    assert (found.exit_code, found.stdout) == (0, expected)


# ------------------------------------------------------------------------- read back


TEXTS = st.text() | st.lists(st.text(st.characters(codec="ascii"))).map("\n".join)
ODD = ["a: b", "# a", "- a\n- b", " a\nb", "a\n\nb", "a\nb ", "\u2028", "\x85", "\ufeff", "'", '"']


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from("abcd"), TEXTS | st.floats(0, allow_infinity=False), min_size=1, max_size=2
    )
)
def test_any_text_and_number_is_read_back_as_it_was_written(node: dict[str, Any]) -> None:
    nested = {"x": node, "y": [node, *node.values()], "z": 3, "none": {}}
    assert yaml.safe_load(to_yaml(nested)) == nested


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_stay_in_their_field(text: str) -> None:
    sections = (
        Section("Privacy parameters", (("spent", text),)),
        Section("Algorithms and their correctness", (("runs", text),)),
        Section("Trust model", (("who sees the data", f"said: {text}"),)),
    )
    found = read(PrivacyStatement(text, sections, parameters={"epsilon": 1e-300}).to_registry())
    assert " ".join(text.split()) in found["deployment"]["deployment_model"]["actors"]
    assert found["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1e-300}
