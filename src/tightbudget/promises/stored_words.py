"""The words that a ledger stores: kinds of events, and states of reservations.

Each value is the text in the tables and in the hashed history, so none of them ever changes. An
event or a row may hold any other text (somebody has changed it, or a later version wrote it), so
values that are read stay plain texts, which compare equal to the members of these enumerations.
"""

from __future__ import annotations

import enum


class EventKind(enum.StrEnum):
    """Names what an event of the history reports."""

    OPENED = "opened"  # a budget was made
    LENT = "lent"  # a budget holds the cap of a part
    RETURNED = "returned"  # a part was closed, and its whole is charged
    CAPPED = "capped"  # a budget has another cap
    CORRECTED = "corrected"  # an administrator has added to what was spent
    CLOSED = "closed"  # a budget was ended
    RESERVED = "reserved"
    REFUSED = "refused"
    STARTED = "started"
    SETTLED = "settled"
    FORFEITED = "forfeited"
    VOID = "void"  # the caller has given a reservation up before its start
    EXPIRED = "expired"  # an administrator has freed a reservation before its start
    TOKEN_CREATED = "token_created"
    TOKEN_REVOKED = "token_revoked"
    MOVED = "moved"  # the ledger goes on in another database
    ARRIVED = "arrived"  # the ledger has come from another database
    AUDITED = "audited"  # an audit of a run or a budget was written down; no balance changes


class ReservationState(enum.StrEnum):
    """Names how far a reservation has come."""

    RESERVED = "reserved"
    STARTED = "started"
    SETTLED = "settled"
    FORFEITED = "forfeited"
    VOID = "void"
    REFUSED = "refused"


# A reservation in one of these states holds something. The index of open reservations has the same
# two words in its definition, which a migration wrote.
OPEN_STATES = (ReservationState.RESERVED, ReservationState.STARTED)
