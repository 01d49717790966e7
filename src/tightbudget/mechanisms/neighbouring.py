"""The relation between data sets under which a guarantee holds."""

from __future__ import annotations

import enum

__all__ = ["Neighbouring"]


class Neighbouring(enum.Enum):
    """The relation between data sets under which a guarantee holds."""

    ADD_OR_REMOVE = "add-or-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"
