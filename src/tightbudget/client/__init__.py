"""The ledger of a server, used from afar. Needs the extra ``remote``, where it asks a server."""

from typing import TYPE_CHECKING

from tightbudget.later import Later, face, installed

if TYPE_CHECKING:
    from tightbudget.client.remote import RemoteBlockRange, RemoteBlocks, RemoteBudget, RemoteHold

__all__ = ["RemoteBlockRange", "RemoteBlocks", "RemoteBudget", "RemoteHold"]

_LATER = dict.fromkeys(__all__, Later("tightbudget.client.remote", "httpx"))

__all__[:] = installed(__all__, _LATER)
__getattr__, __dir__ = face(globals(), _LATER)
