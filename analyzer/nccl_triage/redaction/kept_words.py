"""What redaction leaves as it is (``rules/redaction/keep.yaml``): common words, accounts, public hosts, networks."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import cache

from nccl_triage import resources
from nccl_triage.engine import nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.lazy_regex import lazily

_RUN = lazily(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LETTERS = lazily(r"[A-Za-z]+")
#: Ids that programs make up: hexadecimal with a digit, as long as those of commits, or longer.
_ID = lazily(r"(?<![A-Za-z0-9])(?=[a-f]{0,64}[0-9])[0-9a-f]{7,64}(?![A-Za-z0-9])")
#: Devices, ranks and processes are evidence, and a parser may mistake them for hosts.
_DEVICE = lazily(
    r"(?i)gpu\d?|(?:rank|cuda|pid|tid|step|epoch|eth|ib|bond|veth|docker|virbr|br|lo|mlx\d?_?|en[opsx]\w*|cpu|numa|pg|nic|hca|default)"
    r"[-_]?\d*(?:[fnpsd]\d+)*"
)
#: Temporary files and folders whose names programs make up.
_MADE_UP = lazily(
    r"nccl-[A-Za-z0-9]{6}|(?:torch|torchelastic|none|tmp|pymp|psm|cuda|sem|ray|plasma|ucx|vader|mpi|pip|pytorch)"
    r"(?:[-_.](?:install|shm|mmap|wheel|ephem|unpacked|build)){0,3}[-_.]?(?=[A-Za-z_]{0,64}\d)"
    r"(?:[A-Za-z0-9_]{6,8}|\d{1,20}|[0-9a-f_]{8,64})"
)
#: What stands in a command for a name that its reader has to fill in.
_PLACEHOLDER = lazily(r"[A-Z]+(?:_[A-Z]+)+")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class KeptWords:
    """Sets of words in lower case; ``networks`` are those whose addresses stay."""

    words: frozenset[str]
    prose: frozenset[str]
    accounts: frozenset[str]
    hosts: frozenset[str]
    labels: frozenset[str]
    content: frozenset[str]
    organisations: frozenset[str]
    published: frozenset[str]
    library_suffixes: frozenset[str]
    suffixes: frozenset[str]
    domains: frozenset[str]
    local_domains: frozenset[str]
    networks: tuple[Network, ...]

    def common(self, text: str, prose: bool = False) -> bool:
        """Tell whether a text is made of common words, digits, single letters and ids alone; with words of ``prose``."""
        if not text.isascii():
            return False
        return _MADE_UP.fullmatch(text) is not None or self._of_words(_ID.sub("", text), prose)

    def _of_words(self, text: str, prose: bool) -> bool:
        return all(
            self._word(run, prose) or all(self._word(part, prose) for part in _RUN.findall(run))
            for run in _LETTERS.findall(text)
        )

    def _word(self, run: str, prose: bool) -> bool:
        lowered = run.lower()
        return len(run) < 2 or lowered in self.words or (prose and lowered in self.prose)

    def plain(self, name: str) -> bool:
        """Tell whether a name identifies nobody: a common word, a number, a device, the name of a program."""
        lowered = name.lower()
        return (
            len(name) < 2
            or _PLACEHOLDER.fullmatch(name) is not None
            or (name.isupper() and self.common(name))
            or lowered in self.words
            or lowered in self.prose
            or not re.search(r"[^\W\d_]", name)
            or _DEVICE.fullmatch(name) is not None
            or lowered.endswith((".py", ".sh", ".log", ".cc", ".cpp", ".so"))
        )

    def account(self, name: str) -> bool:
        """Tell whether many machines have an account of this name."""
        return name.lower() in self.accounts or (name.isascii() and self._of_words(name, prose=False))

    def public(self, host: str) -> bool:
        """Tell whether a host is public, as opposed to a machine below a company's own domain."""
        lowered = host.lower().rstrip(".")
        label, _, domain = lowered.partition(".")
        below = any(f".{end}" in self.hosts for end in _ends(lowered))
        return lowered in self.hosts or below or (label in self.labels and domain in self.hosts)

    def of_users(self, host: str) -> bool:
        """Tell whether a path on a public host belongs to a user."""
        return any(end in self.content for end in _ends(host.lower().rstrip(".")))


def _ends(host: str) -> list[str]:
    """Return a host's name and the domains that it lies in."""
    labels = host.split(".")
    return [".".join(labels[start:]) for start in range(len(labels))]


def _words(node: Node) -> frozenset[str]:
    return frozenset(word.lower() for text in node.texts() for word in text.split())


@cache
def vocabulary() -> KeptWords:
    """Return the words to keep; raises RuleError when the file is invalid."""
    text = (resources.rules_dir() / "redaction" / "keep.yaml").read_text(encoding="utf-8")
    names = [name for name in KeptWords.__dataclass_fields__ if name != "networks"]
    part = nodes.parse(text, "rules/redaction/keep.yaml").keys((*names, "networks"))
    networks = tuple(ipaddress.ip_network(network) for network in part["networks"].texts())
    return KeptWords(networks=networks, **{name: _words(part[name]) for name in names})
