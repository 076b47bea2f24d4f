"""Pseudonyms of hosts, users, projects and buckets: given as names, found again wherever they stand in a text."""

from __future__ import annotations

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import pseudonyms
from nccl_triage.redaction.kept_words import vocabulary
from nccl_triage.redaction.names import KnownNames
from nccl_triage.redaction.pseudonyms import Pseudonyms, looks_made

_PORT = lazily(r"(?P<name>[^\s:]+)(?P<port>:\d{1,5})")
_HOST = lazily(r"[^\W_](?:[\w.-]*\w)?")
_NUMBER = lazily(r"v?\d+(?:\.\d+)*")
#: A name of letters alone is looked for in texts from this length on: shorter ones are parts of everything.
_LETTERS = 4


class Identities:
    """Gives pseudonyms to names and remembers them in ``known``."""

    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self.pseudonyms = pseudonyms
        self.known = KnownNames()

    def address(self, address: pseudonyms.Address, prefix: int | None = None) -> str | None:
        """Return the pseudonym of an address or network, None for one that stays."""
        return pseudonyms.address_pseudonym(address, prefix, self.pseudonyms)

    def host(self, name: str) -> str:
        """Return the pseudonym of a host: ``host-1``, with its domain ``host-1.domain-1``; ports stay."""
        with_port = _PORT.fullmatch(name)
        if with_port:
            return self.host(with_port["name"]) + with_port["port"]
        address = pseudonyms.parse_address(name)
        if address is not None:
            made = self.address(address)
            return name if made is None else name.replace(name.strip("[]").split("%")[0], made)
        if not name or self._stays(name) or not _HOST.fullmatch(name) or vocabulary().public(name):
            return name
        label, _, domain = name.partition(".")
        shown = self._label(label)
        if domain:
            only_domain = "." not in domain and domain.lower() in vocabulary().domains
            shown = self.domain(name) if only_domain else f"{shown}.{self.domain(domain)}"
        self.known.add(name, shown)
        return shown

    def _stays(self, name: str) -> bool:
        """Tell whether a name stays: it is a pseudonym already, or says nothing."""
        if self.pseudonyms.made(name) or pseudonyms.take_address(name, self.pseudonyms):
            return True
        return (vocabulary().plain(name) or _is_short(name)) and not looks_made(name)

    def _label(self, label: str) -> str:
        if self._stays(label):
            return label
        shown = self.pseudonyms.of("hosts", label.lower())
        self.known.add(label, shown)
        return shown

    def domain(self, name: str) -> str:
        """Return the pseudonym of a domain."""
        if self.pseudonyms.made(name):
            return name
        shown = self.pseudonyms.of("domains", name.lower())
        if "." in name:
            self.known.add(name, shown)
        return shown

    def user(self, name: str) -> str:
        """Return the pseudonym of a user; accounts that many machines have stay."""
        account = vocabulary().account(name) and not looks_made(name)
        if not name or account or self._stays(name) or name.startswith("[secret"):
            return name
        return self._named("users", name)

    def project(self, name: str) -> str:
        """Return the pseudonym of a project, run, job or tenant."""
        name = name.strip("-_.")
        return name if self._stays(name) or name.startswith("[secret") else self._named("names", name)

    def bucket(self, name: str) -> str:
        """Return the pseudonym of a bucket."""
        return name if not name or self._stays(name) else self._named("buckets", name)

    def number(self, kind: str, name: str) -> str:
        """Return the pseudonym of a device's number: a MAC address, a GUID, a serial number."""
        if self.pseudonyms.made(name):
            return name
        shown = self.pseudonyms.of(kind, name.lower())
        self.known.add(name, shown)
        return shown

    def _named(self, kind: str, name: str) -> str:
        shown = self.pseudonyms.of(kind, name.lower())
        if not _is_short(name) and len(name) > (2 if name.isascii() else 1):
            self.known.add(name, shown)
        return shown


def _is_short(name: str) -> bool:
    """Tell whether a name of letters alone is too short; of Chinese characters any number is enough."""
    return name.isascii() and name.isalpha() and len(name) < _LETTERS


def is_version(text: str) -> bool:
    """Tell whether what follows an ``@`` is a version or a number rather than a host."""
    return _NUMBER.fullmatch(text) is not None
