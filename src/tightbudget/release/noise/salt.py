"""Draws keys of hashes, which choose rows at random, from the operating system."""

from __future__ import annotations

import secrets


def fresh_salt() -> str:
    """Draws a new key: 32 hexadecimal digits of the operating system's cryptographic source."""
    return secrets.token_hex(16)
