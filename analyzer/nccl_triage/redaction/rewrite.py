"""Rewrite texts with pseudonyms: names are learnt from all fields of a document first, then every text is rewritten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import names, pseudonyms
from nccl_triage.redaction.identities import Identities, is_version
from nccl_triage.redaction.kept_words import vocabulary
from nccl_triage.redaction.names import KnownNames, forms_in
from nccl_triage.redaction.paths import Paths, Urls
from nccl_triage.redaction.pseudonyms import Pseudonyms
from nccl_triage.redaction.strings import plain


class FieldKind(Enum):
    """What a string of the document is."""

    FIXED = "an id, a word of the schema, a time, a version: never changed"
    HOST = "the name of a host"
    PATH = "the path of a log"
    TEXT = "text, in which names may stand"


#: Last parts of keys whose strings are never changed.
_FIXED = frozenset(
    {
        *("schema_version", "verdict", "cause", "family", "status", "weight", "role", "signature", "state", "kind"),
        *("outcome", "decided_by", "explained_by", "id", "time", "started", "since", "until", "stage", "op", "dtype"),
        *("backend", "passing", "type", "port_kind", "interface", "to_interface", "by_interface", "references"),
        *("run", "runs", "launcher", "frameworks", "exit", "secrets", "metric", "unit", "x", "x_start", "urgency"),
        *("when", "level", "dtype_assumed", "via"),
    }
)
_FIXED_WITHIN = frozenset({"tool", "software", "treatment", "vary", "pseudonyms"})
_HOSTS = frozenset({"host", "hosts"})
_HOSTS_WITHIN = frozenset(
    {"hosts.name", "peers.names", "reachability.from", "reachability.to", "failed.from", "failed.to"}
)


@lru_cache(maxsize=4096)
def kind_of(key: str) -> FieldKind:
    """Return what the strings of a key hold; a key is given with that of the mapping around it, as ``hosts.name``."""
    around, _, last = key.rpartition(".")
    if around in _FIXED_WITHIN or last in _FIXED:
        return FieldKind.FIXED
    if last in _HOSTS or key in _HOSTS_WITHIN:
        return FieldKind.HOST
    return FieldKind.PATH if last == "path" or key == "series.source" else FieldKind.TEXT


#: An alternative of the shell or a block of awk; ``${NAME}`` is a part of a path.
_BRACE = lazily(r"(?<!\$)\{")


class Rewriter:
    """Learns the names of a document and replaces them; ``pseudonyms`` counts what it made."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.pseudonyms = Pseudonyms(counts)
        self._people = Identities(self.pseudonyms)
        self._paths = Paths(self.pseudonyms, self._people.user, self._people.known)
        self._urls = Urls(self._paths, self._people)
        #: Paths that a field of the document holds: in texts they are found whatever characters they have.
        self._known_paths = KnownNames(edges="/-_")
        self._learnt_paths: dict[str, None] = {}
        self._memo: dict[str, str] = {}
        self._forms: dict[str, list[re.Match[str]]] = {}

    def learn(self, kind: FieldKind, key: str, text: str) -> None:
        """Learn the names that a string of the document holds."""
        if kind is FieldKind.FIXED:
            return
        if kind is FieldKind.HOST:
            self._people.host(text)
        elif kind is FieldKind.PATH:
            self._learnt_paths.setdefault(text)
        else:
            around, _, name = key.rpartition(".")
            written = f"{name}={text}" if around == "env" else text
            for shown in {written: None, plain(written): None}:
                for found, value in names.names_in(shown):
                    self._learn_name(found, value)
            self.text(text)

    def _learn_name(self, kind: names.NameKind, name: str) -> None:
        if kind == "host":
            self._people.host(name)
        elif kind == "user":
            self._people.user(name)
        elif kind == "name":
            self._people.project(name)
        elif kind == "repo":
            self._repository(name)
        elif kind == "path":
            self._learnt_paths.setdefault(name)
        else:
            self._people.number(f"{kind}s", name)

    def _repository(self, name: str) -> None:
        """Learn the names of a repository of somebody, as ``owner/model``; what the public knows stays."""
        owner, _, repository = name.partition("/")
        if owner.lower() not in vocabulary().organisations and not vocabulary().common(owner):
            self._people.project(owner)
            self._people.project(repository)

    def settle(self) -> None:
        """Finish learning; from here on texts are rewritten."""
        for path in self._learnt_paths:
            self._known_paths.add(path, self._paths.of(path))
        self._memo.clear()

    def finish(self, counts: Mapping[str, int]) -> None:
        """Forget the texts of a document, not its names; ``counts`` are the numbers that it has in the end."""
        self._memo.clear()
        self._forms.clear()
        self.pseudonyms.reserve(counts)

    def field(self, kind: FieldKind, text: str) -> str:
        """Return a string of the document rewritten."""
        if kind is FieldKind.FIXED:
            return text
        return self._paths.of(text) if kind is FieldKind.PATH else self.text(text)

    def text(self, text: str) -> str:
        """Return a text with every name in it replaced."""
        made = self._memo.get(text)
        if made is None:
            made = self._memo[text] = self._rewritten(text)
        return made

    def _rewritten(self, text: str) -> str:
        seen = plain(text)
        if seen != text:  # colours inside a name would hide it
            made = self._replaced(seen)
            if made != seen:
                return made
        return self._replaced(text)

    def _replaced(self, text: str) -> str:
        if text not in self._forms:
            self._forms[text] = forms_in(text)
        parts, done = [], 0
        for start, end, replacement in self._known_paths.find(text):
            parts += [self._between(text, done, start), replacement]
            done = end
        return "".join([*parts, self._between(text, done, len(text))])

    def _between(self, text: str, start: int, end: int) -> str:
        """Rewrite a part of a text; what only looks like an address or a path may be a part of a name."""
        replace = self._people.known.replace
        parts = []
        for match in self._forms[text]:
            if start <= match.start() and match.end() <= end:
                made = self._form(match)
                if made is not None:
                    parts += [replace(text[start : match.start()]), made]
                    start = match.end()
        return "".join([*parts, replace(text[start:end])])

    def _form(self, match: re.Match[str]) -> str | None:
        """Return what stands in place of a text that its form gives away, or None when it is not what it looks like."""
        token, people, kind = match[0], self._people, match.lastgroup
        if kind == "secret":
            return token
        if kind == "made":
            return token if pseudonyms.take_address(token, self.pseudonyms) else None
        if kind == "pseudonym":
            return token if self.pseudonyms.made(token) else None
        if kind == "url":
            return self._urls.of(token)
        if kind == "mail":
            return self._mail(token)
        if kind == "uuid":
            return f"{token[:3]}-{people.number('gpus', token[4:])}"
        if kind in ("mac", "guid"):
            return people.number(f"{kind}s", token)
        if kind == "apart":
            return self._apart(token)
        if kind in ("ipv4", "ipv6"):
            return self._address(match)
        if kind == "winpath":
            return self._paths.of(token, "\\\\" if "\\\\" in token else "\\")
        if kind in ("path", "file"):
            return self._path(token)
        return self._nodes(token) if kind == "nodes" else self._domain(token)

    def _mail(self, token: str) -> str | None:
        people, words = self._people, vocabulary()
        user, _, host = token.rstrip(".-_").partition("@")
        tail = token[len(user) + 1 + len(host) :]
        nid = pseudonyms.parse_address(user)
        if nid is not None:  # an address in a network of Lustre
            return f"{people.address(nid) or user}@{host}{tail}"
        named = people.known.replace(host) != host or any(char in ".-0123456789" for char in host)
        address = pseudonyms.parse_address(host)
        if address is not None:
            shown = people.address(address) or host
            return f"{people.user(user)}@{shown}{tail}"
        if is_version(host) or not named or (words.plain(user) and user.lower() not in words.accounts):
            return None
        only_domain = host.count(".") == 1 and host.rpartition(".")[2].lower() in words.domains
        shown = people.domain(host) if only_domain and not words.public(host) else people.host(host)
        return f"{people.user(user)}@{shown}{tail}"

    def _address(self, match: re.Match[str]) -> str | None:
        text, _, length = match[0].partition("/")
        address = pseudonyms.parse_address(text)
        bracketed = match.string[max(0, match.start() - 1) : match.start()] == "["
        if address is None or not (address.version == 4 or bracketed or pseudonyms.is_written_address(text)):
            return None
        if pseudonyms.is_version_not_address(address, match.string[: match.start()]):
            return match[0]
        prefix = int(length) if length and int(length) <= address.max_prefixlen else None
        made = self._people.address(address, prefix)
        return match[0] if made is None else made + match[0][len(text) :]

    def _apart(self, token: str) -> str | None:
        """Return what stands in place of an address whose numbers are joined by ``_`` or ``-``."""
        address = pseudonyms.parse_address(token.replace("_", ".").replace("-", "."))
        return None if address is None else self._people.address(address)

    def _path(self, token: str) -> str | None:
        path = _BRACE.split(token, maxsplit=1)[0].rstrip(".")
        suffix = path.rpartition(".")[2].lower()
        if not path.startswith(("/", ".", "~")) and suffix in vocabulary().library_suffixes:
            return None
        return self._paths.of(path) + self._people.known.replace(token[len(path) :])

    def _nodes(self, token: str) -> str | None:
        hosts = names.hosts_of_list(token)
        if hosts is None:
            return None
        known = any(self._people.known.replace(host) != host or self.pseudonyms.made(host) for host in hosts[:64])
        if not known and not names.is_host_list(token):
            return None
        return names.shortened([self._people.host(host) for host in hosts])

    def _domain(self, token: str) -> str | None:
        words = vocabulary()
        host = re.split("[:/]", token, maxsplit=1)[0]
        labels = host.split(".")
        named = any(char.isdigit() or char == "-" for label in labels[:-1] for char in label)
        if not (
            labels[-1] in words.domains or named or words.of_users(host) or self._people.known.replace(host) != host
        ):
            return None
        return self._urls.of(f"x://{token}").removeprefix("x://")
