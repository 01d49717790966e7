"""The settings of a server, and which addresses are of the machine itself."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tightbudget.numerics.validate import count, positive, positive_count, refuse

__all__ = ["Settings", "is_loopback"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """What a server is told.

    Args:
        ledger: the URL of the ledger, as SQLAlchemy has it.
        host, port: where it listens; by default on this machine alone.
        public_url: the address that people use, if a reverse proxy answers it.
        largest_body: bytes of a request.
        most_cells: of a guarantee that is reserved for.
        most_open: reservations that may be open in one budget, and in all budgets of an
            analyst's token together.
        request_seconds: in which the head of a request must have arrived, and then its body.
        secret: by which forms are signed, for as long as the server runs.
    """

    ledger: str
    host: str = "127.0.0.1"
    port: int = 8000
    public_url: str | None = None
    largest_body: int = 1 << 20
    most_cells: int = 10_000
    most_open: int = 1_000
    request_seconds: float = 10.0
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        if not count(port=self.port) < 1 << 16:
            raise refuse("port", "be in [0, 65535]", self.port)
        for name in ("largest_body", "most_cells", "most_open"):
            positive_count(**{name: getattr(self, name)})
        positive(request_seconds=self.request_seconds)
        if self.public_url is not None and not _is_address(self.public_url):
            must = "be an address such as https://budget.example.org"
            raise refuse("public_url", must, self.public_url)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it: then reading needs no token."""
        if self.public_url is not None:
            return False
        return self.host == "localhost" or is_loopback(self.host)

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers may be told to keep cookies for TLS."""
        return self.public_url is not None and self.public_url.startswith("https:")

    def answers_to(self, name: str) -> bool:
        """Whether a request for this host is meant for this server.

        A page of another site whose name was pointed at this machine would come with its own.
        """
        if self.public_url is not None:
            return name in (urlsplit(self.public_url).hostname, *_LOOPBACK)
        return not self.is_local or name in (self.host, *_LOOPBACK)


def _is_address(url: str) -> bool:
    """Whether it is a scheme and a host, perhaps with a port, and no more."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    more = (parts.username, parts.password, parts.path.strip("/"), parts.query, parts.fragment)
    return parts.scheme in ("http", "https") and bool(host) and port != 0 and not any(more)


def is_loopback(host: str) -> bool:
    """Whether this is an address of the machine itself, also one of version 4 in version 6."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
