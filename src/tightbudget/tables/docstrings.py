"""Docstrings of questions: what a base says of its arguments stands in each question, too."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"^Args:\n(?:(?: {4}.*)?\n|(?: {4}.*)$)+", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}(\w+): .*(?:\n {8}.*)*", re.MULTILINE)


def with_arguments_of_bases(kind: type) -> str:
    """Returns the docstring of a class, with the arguments that its bases describe.

    Arguments come in the order of the fields of a dataclass. What the class says of an argument
    itself goes before what a base says of it.
    """
    told: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for section in _SECTION.findall(inspect.cleandoc(vars(base).get("__doc__") or "")):
            told |= {found[1]: found[0] for found in _ARGUMENT.finditer(section)}
    text = inspect.cleandoc(kind.__doc__ or "") + "\n"
    if not told:
        return text
    before, _, after = _SECTION.sub("\0", text).partition("\0")
    if not after and "\nRaises:" in before:
        before, after = before.split("\nRaises:")[0] + "\n", "Raises:" + text.split("\nRaises:")[1]
    parts = [before.strip(), "\n".join(["Args:", *told.values()]), after.strip()]
    return "\n\n".join(part for part in parts if part)
