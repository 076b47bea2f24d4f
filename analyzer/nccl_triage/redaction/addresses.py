"""Pseudonyms of network addresses that still show what a diagnosis needs.

``10.net-2.7`` is address 7, in network 2 (the same /24, or /64 of IPv6), of the private block 10.0.0.0/8. Blocks are
10, 172.16 (172.16.0.0/12), 192.168, 100.64 (carrier-grade NAT), fd (unique local IPv6) and public. Addresses that mean the
same everywhere stay: loopback, unspecified, link-local, multicast, the bridges of Docker and libvirt. Of a link-local IPv6
address the prefix stays and its interface identifier, which holds the MAC address, becomes ``fe80::id-3``.
"""

from __future__ import annotations

import ipaddress

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction.pseudonyms import Pseudonyms
from nccl_triage.redaction.vocabulary import vocabulary

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_BLOCKS = tuple(
    (name, ipaddress.ip_network(network))
    for name, network in (
        ("10", "10.0.0.0/8"),
        ("172.16", "172.16.0.0/12"),
        ("192.168", "192.168.0.0/16"),
        ("100.64", "100.64.0.0/10"),
        ("fd", "fc00::/7"),
    )
)
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")
_IDENTIFIER = (1 << 64) - 1
#: Addresses that this module made.
MADE = r"(?:(?:10|172\.16|192\.168|100\.64|fd|public)\.net-\d{1,9}(?:\.\d{1,9})?|fe80::id-\d{1,9})"
_MADE = lazily(r"(?:.+\.net-(?P<network>\d+)(?:\.(?P<address>\d+))?|fe80::id-(?P<id>\d+))")
_VERSION = lazily(r"(?i)(?:==|[~<>]=|version|release|driver|cuda|cudnn|nccl|cublas|[a-z]-|_|\bv)[\s:=]{0,3}$")


def parse(text: str) -> Address | None:
    """Return the address that a text is, without zone and brackets, or None."""
    try:
        return ipaddress.ip_address(text.strip("[]").split("%")[0])
    except ValueError:
        return None


def stays(address: Address) -> bool:
    """Tell whether an address means the same everywhere."""
    return any(address in network for network in vocabulary().networks if network.version == address.version)


def is_version(address: Address, before: str) -> bool:
    """Tell whether four numbers after this text are a version rather than an address."""
    return address.version == 4 and _block(address) == "public" and _VERSION.search(before[-24:]) is not None


def is_written_address(text: str) -> bool:
    """Tell whether a text with colons is an IPv6 address rather than a time, a scope of C++ or a PCI address."""
    address = parse(text)
    if address is None:
        return False
    groups = text.split("%")[0].split(":")
    first = int(address) >> 112
    known = first >> 13 == 1 or first >> 9 == 0x7E or first >> 6 == 0x3FA or "." in groups[-1]
    return (len(groups) == 8 and "" not in groups) or (known and len(groups) >= 3)


def taken(text: str, pseudonyms: Pseudonyms) -> bool:
    """Tell whether a text of the form of ``MADE`` came with the document."""
    match = _MADE.fullmatch(text)
    if match is None:
        return False
    if match["id"]:
        return pseudonyms.taken("addresses", int(match["id"]))
    number = match["address"]
    return pseudonyms.taken("networks", int(match["network"])) and (
        number in (None, "0") or pseudonyms.taken("addresses", int(number))
    )


def _block(address: Address) -> str:
    return next((name for name, block in _BLOCKS if address.version == block.version and address in block), "public")


def pseudonym(address: Address, prefix: int | None, pseudonyms: Pseudonyms) -> str | None:
    """Return what stands in place of an address, or of a network when ``prefix`` is the length of its mask.

    None is returned for what means the same everywhere.
    """
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None:
        shown = pseudonym(mapped, None, pseudonyms)
        return None if shown is None else f"::ffff:{shown}"
    if stays(address):
        return None
    if address in _LINK_LOCAL:
        return f"fe80::id-{pseudonyms.number('addresses', str(address))}" if int(address) & _IDENTIFIER else None
    length = 24 if address.version == 4 else 64
    if prefix is not None and prefix < length:
        length = prefix
    network = ipaddress.ip_network(f"{address}/{length}", strict=False)
    if any(block.version == network.version and block == network for _, block in _BLOCKS):
        return None
    stem = f"{_block(address)}.net-{pseudonyms.number('networks', str(network))}"
    is_network = address == network.network_address
    return f"{stem}.{0 if is_network else pseudonyms.number('addresses', str(address))}"
