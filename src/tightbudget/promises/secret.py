"""Texts that only their holder knows: random bits, of which the ledger keeps a hash.

Guarantee: who reads the whole database does not learn such a text. Nobody guesses 128 random
bits, so their SHA-256 needs neither salt nor slowness.
"""

from __future__ import annotations

import hmac
import re
import secrets

from tightbudget.errors import ParameterError
from tightbudget.promises.chain import digest

_FORM = re.compile("[0-9a-f]{32}")


def new_secret(size: int = 16) -> str:
    """Draws a secret of ``size`` random bytes, in hexadecimal digits."""
    return secrets.token_hex(size)


def chosen_or_new(token: object) -> str:
    """Returns the token that a caller has chosen for a run, or a new one if it is None.

    Raises:
        ParameterError: it is not 32 hexadecimal digits; the message does not show it.
    """
    if token is None:
        return new_secret()
    if not isinstance(token, str) or _FORM.fullmatch(token) is None:  # guard: chosen-token-is-long
        raise ParameterError(
            "token must be 32 hexadecimal digits in small letters, say secrets.token_hex(16), got "
            "something else"
        )
    return token


def opens(text: str, kept: str | None) -> bool:
    """Says whether ``kept`` is the digest of this text; never where nothing is kept.

    Guarantee: the time of the comparison does not depend on either of them.
    """
    same = hmac.compare_digest(digest(text), kept or digest(""))
    return same and kept is not None  # guard: nothing-kept-opens-nothing
