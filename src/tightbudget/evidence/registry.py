"""A draft record for the registry of deployments of differential privacy, from a statement.

What the statement knows goes into the fields that the registry asks for. A field that a person must
write says so; a field that has one of a few words has the likeliest one, and a comment to check it.

Source: the schema of the registry's records, github.com/opendp/deployments-registry-data, as its
records of September 2026 have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

SCHEMA = "2026-09"  # the month of the records whose fields these are

_WRITE = "TODO:"
_CHECK = "TODO: check"

# Where one of a few words is asked for, and what is put there to be checked
_CHOICES = {
    "data_product_type",
    "publication_date",
    "model_name",
    "release_type",
    "data_source_type",
    "access_type",
}

Known = Mapping[str, dict[str, str]]


def record(
    title: str,
    sections: Known,
    *,
    variant: str,
    parameters: Mapping[str, float],
    lasting: bool,
    version: str,
) -> dict[str, Any]:
    """Arranges what a statement knows as a draft record of the registry.

    Args:
        title: what the statement is about.
        sections: for each heading of the statement its fields that are known, with their texts.
        variant: the registry's word for the variant of differential privacy.
        parameters: of epsilon (nats), delta and rho those that the variant has.
        lasting: whether releases go on, as from a budget, or there is one, as of a run.
        version: of this package.
    """
    unit, trust = dict(sections.get("Unit of privacy", {})), sections.get("Trust model", {})
    whom = unit.pop("whom one unit is", "") or _to_write("whom one unit is")
    public = unit.pop("declared to be public", "")
    algorithms = sections.get("Algorithms and their correctness", {})
    budget, access = sections.get("Budget", {}), sections.get("Security and access control", {})
    return {
        "url_slug": "todo-product-curator-year",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": _to_write("the name of what is published"),
                "data_curators": [
                    {
                        "data_curator_name": _to_write("who publishes it"),
                        "data_curator_type": _to_write("what kind of organisation that is"),
                    }
                ],
                "intended_use": _to_write("what it is for"),
                "data_product_type": "Summary statistics" if lasting else "Machine learning model",
                "data_product_region": _to_write("the region that it describes"),
                "description": _to_write("what it is, in two sentences"),
                "publication_date": date.today().isoformat(),
            },
            "dp_variant": {
                "variant_name": variant,
                "data_domain": _to_write("which data sets could have been there"),
                "unprotected_quantities": public
                or _to_write("what is published without noise, or none"),
            },
            "privacy_loss": {
                "privacy_unit": whom,
                "privacy_unit_details": _lines(unit) or _to_write("which data sets are neighbours"),
                "privacy_parameters": dict(parameters),
                "privacy_parameters_details": _lines(sections.get("Privacy parameters", {})),
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": _lines(trust) or _to_write("who sees data or outputs, and is trusted"),
                "release_type": "Many releases" if lasting else "One release",
                "release_type_details": _lines(budget)
                or _to_write("whether the data are used again"),
                "data_source_type": "Static",
                "access_type": "Non-interactive",
                "access_type_details": _lines(access) or _to_write("who may ask, and how much"),
            },
            "accounting": {
                "post_processing": _to_write("what is done with the outputs"),
                "composition": algorithms.get("composition")
                or "adaptive: a ledger adds up what each run cost, by the output that it had; its "
                "events are chained by hashes",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _to_write(
                    "what was done with the data before, and whether its cost is in the parameters"
                ),
                "mechanisms": _lines(
                    algorithms
                    | sections.get("Side channels", {})
                    | sections.get("Data collection exposure", {})
                ),
                "justification": _lines(sections.get("Utility and bias", {}))
                or _to_write("how parameters, unit and mechanisms were chosen"),
            },
            "administrative": {
                "sources": _to_write("papers, pages and code, with their addresses"),
                "notes": f"drafted from a statement on {title} by tightbudget {version}, for the "
                f"fields of {SCHEMA}",
                "registry_authors": [_to_write("your name")],
            },
        },
    }


def to_yaml(node: Mapping[str, Any]) -> str:
    """Writes a record in YAML, with a comment at each word that is to be checked."""
    return "\n".join(_yaml(node, "")) + "\n"


def _to_write(what: str) -> str:
    return f"{_WRITE} {what}"


def _lines(rows: Mapping[str, str]) -> str:
    """Writes the known fields of a section as a list in Markdown."""
    return "\n".join(f"- {field}: {' '.join(text.split())}" for field, text in rows.items())


def _yaml(node: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:" + " {}" * (not value)
            yield from _yaml(value, indent + "  ")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{indent}{key}:"
            for item in value:
                if isinstance(item, Mapping):
                    first, *rest = _yaml(item, indent + "    ")
                    yield f"{indent}  - {first.lstrip()}"
                    yield from rest
                else:
                    yield f"{indent}  - {_scalar(item, indent + '    ')}"
        else:
            check = f"  # {_CHECK}" if key in _CHOICES else ""
            yield f"{indent}{key}: {_scalar(value, indent + '  ')}{check}"


# A line that a literal block of YAML keeps as it is: it begins with a character that is not white
# space, ends with one, and has no control characters and no other line break.
_PLAIN = re.compile(
    r"[!-~\xa1-\ud7ff](?:[ -~\xa1-\u1fff\u2010-\u2027\u2030-\ud7ff]*[!-~\xa1-\ud7ff])?"
)


def _scalar(value: Any, indent: str) -> str:
    """Writes a number or a text: a literal block where it has lines, else in double quotes."""
    if isinstance(value, float):  # YAML 1.1 takes 1e-05 for a text, and 1.0e-05 for a number
        mantissa, e, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}"
    if not isinstance(value, str):
        return str(value)
    lines = value.split("\n")
    if len(lines) > 1 and all(_PLAIN.fullmatch(line) for line in lines):
        return "\n".join(["|-", *(indent + line for line in lines)])
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    """Writes a character between double quotes; JSON has two escapes where YAML has one."""
    code = ord(character)
    return f"\\U{code:08x}" if code > 0xFFFF else json.dumps(character)[1:-1]
