"""ROS domains for measurements and tests."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, Iterator

import pytest
from domains import DOMAINS, DomainClaim


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def next_to(claim: DomainClaim, held: ExitStack, **arguments: Any) -> int:
    """The domain that a search finds which begins with a claimed one."""
    found = DomainClaim(claim.number - 1, **arguments)
    held.callback(found.close)
    return found.number


def test_a_claimed_domain_is_passed_over(held: ExitStack) -> None:
    claim = DomainClaim()
    assert claim.number in DOMAINS
    assert next_to(claim, held) != claim.number
    claim.close()
    assert next_to(claim, held) == claim.number


@pytest.mark.parametrize("place", [0, 10])
def test_a_domain_with_a_participant_is_passed_over(place: int, held: ExitStack) -> None:
    """What an RTPS participant listens on: the domain's multicast port, shared, or the first unicast port."""
    claim = DomainClaim()
    claim.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        if place == 0:
            participant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        participant.bind(("127.0.0.1" if place else "", 7400 + 250 * claim.number + place))
        assert next_to(claim, held) != claim.number
    assert next_to(claim, held) == claim.number


def test_an_unwanted_domain_is_passed_over(held: ExitStack) -> None:
    claim = DomainClaim()
    claim.close()
    assert next_to(claim, held, avoid=str(claim.number)) != claim.number
    assert next_to(claim, held, avoid="no number") == claim.number


def test_domains_use_no_port_of_other_connections() -> None:
    assert 7400 + 250 * DOMAINS[-1] + 249 < 32768, "Linux gives those above to any connection"
