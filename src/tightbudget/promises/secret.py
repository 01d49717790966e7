"""Texts that only their holder knows: random bits, of which the ledger keeps a hash.

Guarantee: who reads the whole database does not learn such a text. Nobody guesses 128 random
bits, so their SHA-256 needs neither salt nor slowness.
"""

from __future__ import annotations

import hmac
import secrets

from tightbudget.promises.chain import digest


def new_secret(size: int = 16) -> str:
    """Draws a secret of ``size`` random bytes, in hexadecimal digits."""
    return secrets.token_hex(size)


def opens(text: str, kept: str | None) -> bool:
    """Says whether ``kept`` is the digest of this text; never where nothing is kept.

    Guarantee: the time of the comparison does not depend on either of them.
    """
    same = hmac.compare_digest(digest(text), kept or digest(""))
    return same and kept is not None  # guard: nothing-kept-opens-nothing
