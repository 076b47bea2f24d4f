"""Pseudonyms: what was seen first has number 1, the same original has the same number, an address keeps its network."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction.kept_words import vocabulary

#: kind, as the document counts it -> the word before the number.
WORDS = {
    "hosts": "host",
    "domains": "domain",
    "users": "user",
    "names": "name",
    "paths": "path",
    "files": "file",
    "buckets": "bucket",
    "macs": "mac",
    "guids": "guid",
    "serials": "serial",
    "gpus": "uuid",
    "accounts": "account",
    "phones": "phone",
}
_KINDS = {word: kind for kind, word in WORDS.items()}
#: Networks and addresses have forms of their own: ``10.net-1.2``.
_COUNTED = (*WORDS, "networks", "addresses")
#: The form of a pseudonym.
FORM = rf"(?:{'|'.join(_KINDS)})-[1-9]\d{{0,8}}"
_FORM = lazily(FORM)
_INSIDE = lazily(rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])")


class Pseudonyms:
    """Numbers for originals; nothing leads back from a number to its original but this object's own memory."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._taken = {kind: int((counts or {}).get(kind, 0)) for kind in _COUNTED}
        self._counts = dict(self._taken)
        self._known: dict[tuple[str, str], int] = {}

    def number(self, kind: str, original: str) -> int:
        """Return the number of an original, the next free one for a new original."""
        key = (kind, original)
        if key not in self._known:
            self._counts[kind] += 1
            self._known[key] = self._counts[kind]
        return self._known[key]

    def of(self, kind: str, original: str) -> str:
        """Return the pseudonym of an original."""
        return f"{WORDS[kind]}-{self.number(kind, original)}"

    def reserve(self, counts: Mapping[str, int]) -> None:
        """Give no number up to these to a new original."""
        for kind, count in counts.items():
            self._counts[kind] = max(self._counts[kind], count)

    def taken(self, kind: str, number: int) -> bool:
        """Tell whether the document came with this number of the kind."""
        return 0 < number <= self._taken[kind]

    def made(self, text: str) -> bool:
        """Tell whether a text is a pseudonym with which the document came."""
        word, _, number = text.rpartition("-")
        return looks_made(text) and self.taken(_KINDS[word], int(number))

    def without(self, text: str) -> str | None:
        """Return a text without the pseudonyms in it; None when one of them did not come with the document."""
        return None if any(not self.made(found[0]) for found in _INSIDE.finditer(text)) else _INSIDE.sub("", text)

    def counts(self) -> dict[str, int]:
        """Return how many pseudonyms there are of each kind that occurs."""
        return {kind: count for kind, count in sorted(self._counts.items()) if count}


def looks_made(text: str) -> bool:
    """Tell whether a text has the form of a pseudonym, whoever made it."""
    return _FORM.fullmatch(text) is not None


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


def parse_address(text: str) -> Address | None:
    """Return the address that a text is, without zone and brackets, or None."""
    try:
        return ipaddress.ip_address(text.strip("[]").split("%")[0])
    except ValueError:
        return None


def address_stays(address: Address) -> bool:
    """Tell whether an address means the same everywhere."""
    return any(address in network for network in vocabulary().networks if network.version == address.version)


def is_version_not_address(address: Address, before: str) -> bool:
    """Tell whether four numbers after this text are a version rather than an address."""
    return address.version == 4 and _block(address) == "public" and _VERSION.search(before[-24:]) is not None


def is_written_address(text: str) -> bool:
    """Tell whether a text with colons is an IPv6 address rather than a time, a scope of C++ or a PCI address."""
    address = parse_address(text)
    if address is None:
        return False
    groups = text.split("%")[0].split(":")
    first = int(address) >> 112
    known = first >> 13 == 1 or first >> 9 == 0x7E or first >> 6 == 0x3FA or "." in groups[-1]
    return (len(groups) == 8 and "" not in groups) or (known and len(groups) >= 3)


def take_address(text: str, pseudonyms: Pseudonyms) -> bool:
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


def address_pseudonym(address: Address, prefix: int | None, pseudonyms: Pseudonyms) -> str | None:
    """Return what stands in place of an address, or of a network when ``prefix`` is the length of its mask.

    None is returned for what means the same everywhere.
    """
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None:
        shown = address_pseudonym(mapped, None, pseudonyms)
        return None if shown is None else f"::ffff:{shown}"
    if address_stays(address):
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
