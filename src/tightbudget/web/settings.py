"""The settings of a server, and which addresses are of the machine itself."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tightbudget.numerics.validate import count, positive, positive_count, refuse

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """The settings of a server.

    Args:
        ledger: the URL of the ledger, as SQLAlchemy has it.
        host, port: the address to listen on; by default this machine alone can reach it.
        public_url: the address that people use, if a reverse proxy answers it.
        largest_body: the most bytes of a request.
        most_cells: the most cells of a guarantee that is reserved for.
        most_open: the most reservations that may be open in one budget, and in all budgets of
            an analyst's token together.
        request_seconds: the most seconds in which the head of a request must arrive, and the
            most in which its body must arrive afterwards.
        secret: the key that signs forms for as long as the server runs.
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
        """Tells that only this machine reaches the server: then reading needs no token."""
        if self.public_url is not None:
            return False
        return self.host == "localhost" or is_loopback(self.host)

    @property
    def is_encrypted(self) -> bool:
        """Tells that browsers reach the server by TLS, and may be told so in cookies."""
        return self.public_url is not None and self.public_url.startswith("https:")

    def answers_to(self, name: str) -> bool:
        """Tells whether a request for this host name is meant for this server.

        Another site may point its own name at this machine; its pages' requests carry that name.
        """
        if self.public_url is not None:
            return name in (urlsplit(self.public_url).hostname, *_LOOPBACK)
        return not self.is_local or name in (self.host, *_LOOPBACK)


def _is_address(url: str) -> bool:
    """Tells whether a URL has a scheme, a host, perhaps a port, and nothing else."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    more = (parts.username, parts.password, parts.path.strip("/"), parts.query, parts.fragment)
    return parts.scheme in ("http", "https") and bool(host) and port != 0 and not any(more)


def is_loopback(host: str) -> bool:
    """Tells whether a host is an address of the machine itself; IPv4 in IPv6 counts."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
