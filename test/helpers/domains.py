"""Finds ROS domains that nothing on this machine takes part in."""

from __future__ import annotations

import socket

#: Domains whose ports all lie below those that Linux gives to any connection.
DOMAINS = range(1, 101)
#: The first port of a domain, as RTPS (9.6.2.3) has it: this, and the second number for each domain.
_FIRST_PORT, _PORTS = 7400, 250
#: Places among a domain's ports: where all participants listen, and the first one alone.
_PARTICIPANTS = (0, 10)
#: Place of a port that RTPS leaves free. The process that holds it owns the domain.
_CLAIM = 2


class DomainClaim:
    """A ROS domain in which nothing took part when it was claimed, and which other claims pass over.

    Args:
        start: The domain before the first one that is tried; the others follow in turn.

    Attributes:
        number: For `ROS_DOMAIN_ID`.

    Raises:
        RuntimeError: No domain is free.
    """

    def __init__(self, start: int) -> None:
        for place in range(len(DOMAINS)):
            self.number = DOMAINS[(start + place) % len(DOMAINS)]
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if _bind(self._socket, self.number, _CLAIM) and not any(_is_taken(self.number, k) for k in _PARTICIPANTS):
                return
            self._socket.close()
        raise RuntimeError(f"each of the ROS domains {DOMAINS[0]} to {DOMAINS[-1]} is in use on this machine")

    def close(self) -> None:
        """Let others have the domain."""
        self._socket.close()


def ports(domain: int) -> range:
    """The UDP ports of a domain; Fast DDS names its shared memory after the same numbers."""
    first = _FIRST_PORT + _PORTS * domain
    return range(first, first + _PORTS)


def _is_taken(domain: int, place: int) -> bool:
    """Whether a process listens at a port of a domain."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return not _bind(probe, domain, place)


def _bind(one: socket.socket, domain: int, place: int) -> bool:
    """Bind a socket to a port of a domain; whether that port was free."""
    try:
        one.bind(("", ports(domain)[place]))
    except OSError:
        return False
    return True
