"""Hides passwords and tokens in a text that a message shows."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r":/+")
_PARAMETERS = re.compile(r"([?#;]).+", re.DOTALL)
_NAMED = re.compile(
    r"((?:pass(?:word|wd|phrase)?|pwd|token|secret|api_?key)['\"]?\s*[=:]).+",
    re.DOTALL | re.IGNORECASE,
)


def hidden(text: str) -> str:
    """Returns a text with ``***`` in place of what may be a password or a token.

    Of an address, all from the scheme to the last @ is hidden, since a password that is not encoded
    may have any sign in it, and all behind the first sign of parameters. So is all behind
    ``password=`` and its like. Any other text is returned unchanged.

    Args:
        text: what a message would show, with or without the quotes of ``repr``.
    """
    end = text[-1:] if text[-1:] in ("'", '"') else ""
    text = text[: len(text) - len(end)]
    if address := _ADDRESS.search(text):
        _, at, place = text[address.end() :].rpartition("@")
        shown = _PARAMETERS.sub(r"\1***", place)
        text = text[: address.end()] + ("***@" if at else "") + shown
    return _NAMED.sub(r"\1***", text) + end
