"""What in a text can be recognised by its form: addresses, paths, URLs, mail addresses, devices, lists of hosts."""

from __future__ import annotations

import re
from functools import lru_cache

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import walk
from nccl_triage.redaction.addresses import MADE
from nccl_triage.redaction.pseudonyms import FORM
from nccl_triage.redaction.vocabulary import vocabulary

_SEGMENT = r"[\w.@+~%=#*{}$-]"
_HEX4 = r"[0-9A-Fa-f]{1,4}"

#: name -> pattern, in the order in which they are tried at each place; {DOMAINS} and the like are filled in.
_FORMS = {
    "secret": r"\[secret:[a-z0-9-]{1,40}\]",
    "made": rf"(?<![A-Za-z0-9.]){MADE}(?![A-Za-z0-9])",
    "url": r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>|)\\,;`]{1,2048}",
    "mail": r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}@[A-Za-z0-9][A-Za-z0-9_.-]{0,252}",
    "uuid": r"(?<![A-Za-z0-9])(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "mac": r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{2}:){5,19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"
    r"|(?<![0-9A-Za-z-])(?=[0-9-]{0,16}[A-Fa-f])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![0-9A-Za-z-])",
    "guid": r"(?<![0-9A-Za-z:.])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![0-9A-Za-z:])",
    "ipv6": rf"(?:(?<![0-9A-Za-z:.])|(?<=\w:)(?=(?i:fe[89ab]|f[cd]|2|::ffff)))(?=[0-9A-Fa-f:]{{0,40}}::|(?:{_HEX4}:){{7}})(?:{_HEX4}(?=:)|(?=::))(?::{{1,2}}{_HEX4}){{1,7}}(?:::)?"
    r"(?:\.\d{1,3}\.\d{1,3}\.\d{1,3})?(?:/\d{1,3})?(?![0-9A-Za-z])",
    "ipv4": r"(?<![A-Za-z0-9.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2}(?![\d/]))?(?![A-Za-z0-9]|\.\d)",
    "apart": r"(?<![0-9A-Za-z.-])(?<![0-9]_)(?:10|172(?=.(?:1[6-9]|2\d|3[01])\D)|192(?=.168\D)|100)"
    r"(?P<joint>[_-])(?:0|[1-9]\d{0,2})(?P=joint)(?:0|[1-9]\d{0,2})(?P=joint)(?:0|[1-9]\d{0,2})(?![0-9A-Za-z-]|_\d)",
    "winpath": r"(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}[\w.@+~%=#-]{1,255}(?:\\{1,2}[\w.@+~%=#-]{1,255}){0,64}",
    "path": rf"(?:(?<![\w./<])|(?<=\w)(?=/(?i:home|homes|users)/))(?:~[\w.-]{{0,64}})?(?:/{_SEGMENT}{{1,255}}){{1,64}}/?"
    rf"|(?<![\w./~$-])(?:\.{{1,2}}/){{1,16}}{_SEGMENT}{{1,255}}(?:/{_SEGMENT}{{1,255}}){{0,64}}",
    "file": r"(?<![\w./~$@-])(?:[\w.@+-]{1,255}/){1,32}[\w.@+=-]{1,200}\.(?:{SUFFIXES})(?![\w-])",
    "nodes": r"(?<![\w.-])[A-Za-z][\w.-]{0,62}\[[0-9][0-9,-]{0,500}\][\w.-]{0,62}",
    "domain": r"(?<![\w.@/-])(?:[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.){1,8}(?:{DOMAINS})(?![\w-]|\.\w)"
    rf"(?::\d{{1,5}})?(?:/{_SEGMENT}{{1,255}}){{0,32}}",
    "pseudonym": rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])",
}


#: What a text must hold for a form to be looked for.
_SIGNS = {
    "secret": lazily(r"\[secret:"),
    "made": lazily(r"\.net-|::id-"),
    "url": lazily("://"),
    "mail": lazily("@"),
    "uuid": lazily("GPU-|MIG-"),
    "mac": lazily(r"[0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-]"),
    "guid": lazily(r"(?:[0-9A-Fa-f]{4}:){3}"),
    "ipv6": lazily(r"::|(?:[0-9A-Fa-f]{1,4}:){4}"),
    "ipv4": lazily(r"\d\.\d{1,3}\.\d{1,3}\.\d"),
    "apart": lazily(r"\d[_-]\d{1,3}[_-]\d{1,3}[_-]\d"),
    "winpath": lazily(r":\\"),
    "path": lazily("/"),
    "file": lazily("/"),
    "nodes": lazily(r"[\w.-]\[\d"),
    "domain": lazily(r"[A-Za-z0-9]\.[a-z]"),
    "pseudonym": lazily(r"[a-z]-\d"),
}


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    words = vocabulary()
    filled = {
        "{SUFFIXES}": "|".join(sorted(words.suffixes | words.library_suffixes)),
        "{DOMAINS}": "|".join(sorted(words.domains | words.local_domains)),
    }
    source = "|".join(f"(?P<{name}>{_FORMS[name]})" for name in names)
    for place, alternatives in filled.items():
        source = source.replace(place, alternatives)
    return re.compile(source)


@lru_cache(maxsize=1 << 14)
def _names_in(shape: str) -> tuple[str, ...]:
    return tuple(name for name, sign in _SIGNS.items() if sign.search(shape))


def forms_in(text: str) -> list[re.Match[str]]:
    """Return what a text holds that its form gives away; the group that matched tells which form it is."""
    names = _names_in(walk.shape(text))
    return list(_pattern(names).finditer(text)) if names else []
