"""Secrets that stand over several lines: keys, values below their names, tokens that were wrapped.

Each line of a log may have a prefix, and lines of others may stand in between. A line is glued to the one that follows
it, without their prefixes, and what a single line would show is masked in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import strings

#: The row of the table that masks a key on one line.
PRIVATE_KEY = "private-key"
_KEY_MARK = f"[secret:{PRIVATE_KEY}]"
_EDGE = r"-----{} (?:[A-Z0-9]{{1,12}} ){{0,3}}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN, _END = lazily(rf"{_EDGE.format('BEGIN')}|Private-Lines: \d{{1,3}}\s*$"), lazily(_EDGE.format("END"))
_CERTIFICATE = lazily(r"-----(BEGIN|END) (?:CERTIFICATE|(?:[A-Z0-9]{1,12} ){0,2}PUBLIC KEY)(?: BLOCK)?-----")
#: A line of the body stands after the prefix of a line; the last one may be short, and the line of END shows that it is one.
_BODY = lazily(r"(?:^|[\s\]:|>)\"'])((?=[a-z]{0,39}[A-Z0-9+/=])[A-Za-z0-9+/=]{16,})[\"']?,?\s*$")
_LAST = lazily(r"(?:^|[\s\]:|>)\"'])([A-Za-z0-9+/=]{4,})[\"']?,?\s*$")
_HEADER = lazily(r"(?:(?:Proc-Type|DEK-Info|Comment|Version|Charset): ?.{1,80}|[\]:|>)]?\s*)$")
#: Lines of a key of 16,384 bits; lines of others that stand together between two of a key.
_MOST_LINES, _MOST_BETWEEN = 220, 3


def is_key_edge(line: str) -> bool:
    """Tell whether a key begins or ends in a line."""
    return ("PRIVATE KEY" in line or "Private-" in line) and bool(_BEGIN.search(line) or _END.search(line))


def mask_private_keys(lines: Sequence[str], telling: Iterable[int]) -> list[str]:
    """Return as many lines, with the bodies of private keys masked: after a BEGIN, before an END that has no BEGIN."""
    made = list(lines)
    for index in telling:
        line = lines[index]
        if not is_key_edge(line):
            continue
        begin = next(reversed(list(_BEGIN.finditer(line))), None)
        if begin is not None and not _END.search(line, begin.end()):
            _mask_body(made, range(index + 1, min(len(lines), index + _MOST_LINES)))
            if not begin[0].startswith("Private-"):
                made[index] = line[: begin.start()] + _KEY_MARK
        end = _END.search(line)
        if end is not None and not _BEGIN.search(line, 0, end.start()):
            _mask_body(made, range(index - 1, max(-1, index - _MOST_LINES), -1))
            made[index] = made[index].replace(end[0], _KEY_MARK)
    return made


def _mask_body(lines: list[str], places: range) -> None:
    between = 0
    for place in places:
        line = lines[place]
        last = place + 1 < len(lines) and _KEY_MARK not in line and _is_end(lines[place + 1])
        match = (_LAST if last else _BODY).search(line)
        if match is not None:
            lines[place] = line[: match.start(1)] + _KEY_MARK + line[match.end(1) :]
            between = 0
        elif not _HEADER.search(line):
            between += 1
            if between > _MOST_BETWEEN or _is_end(line):
                return


def _is_end(line: str) -> bool:
    return _END.search(line) is not None or "Private-MAC:" in line


def public_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of certificates and of public keys, which look like those of private ones."""
    inside = False
    for line in lines:
        edge = _CERTIFICATE.search(line) if "-----" in line else None
        if edge is not None:
            inside = edge[1] == "BEGIN"
        elif inside:
            yield line


_MARK_AT_END = lazily(r"\[secret:([a-z0-9-]+)\][\"']?\Z")
#: What ends a line whose value follows on the next one.
_OPEN = frozenset(":=：＝>,(\\|\"'+-")
_OPEN_WORD = lazily(r"--?[A-Za-z][\w-]{1,60}|(?i:bearer|basic)")
_LONGEST_OPTION = 80
#: What may be the beginning of a token at the end of a line, if letters and digits mix in it.
_TORN = lazily(r"[\"']?[\w.+/~-]{5,}")
_OPENING = lazily(r"(?:\s*[>|][+-]?|[\s\\(\"']+)\Z")
#: A token alone on its line, as one that was wrapped leaves it.
_ALONE = lazily(r"[\"'(]?([A-Za-z0-9+/=_.~-]{8,})[\"'),;\]}]*\Z")
#: Quotes and closing signs around a value.
_AROUND = lazily(r"([\"'(]*)(.*?)([\"'),;\]}\\\s]*)\Z")
#: The prefix of a line ends with one of these, and has one of those in it, if it is more than spaces.
_LEAD_ENDS, _LEAD_HAS = " \t]|>)", frozenset("0123456789[]()|")
#: The name of a value that stands on a line of its own, and such a value.
_NAMED = lazily(
    r"(?:<(?:name|key)>|(?<![\w-])[\"']?(?:name|Name|NAME|key|Key|KEY)[\"']?\s?[:=]\s?[\"']?)([\w.-]{2,80})(?:</|[\"',;]|\s*$)"
)
_NAME_WORDS = ("name", "Name", "NAME", "key", "Key", "KEY")
_VALUE = lazily(r"(?:<(?:value|string)>|(?<![\w-])[\"']?(?i:value)[\"']?\s?[:=]\s?[\"']?)([^\"'<>\n]*)")
_STOP = lazily(r"[}\]],?\Z|</(?:property|entry|dict)|- ")
#: Lines between a name and its value; lines of a secret of Kubernetes.
_NEAR, _MOST_DATA = 3, 64
_DATA = lazily(r"[\"']?(?:data|stringData)[\"']?:\s*\{?\Z")
_ENTRY = lazily(r"[\"']?[\w./-]{1,253}[\"']?:\s+[\"']?([^\s\"'{}\[\]|>][^\"'{}\[\]]*)")


def lead(one: str, other: str) -> int:
    """Return the length of the prefix that two lines share but for its digits: a rank, a time, the name of a host."""
    pairs = zip(strings.shape(one[:200]), strings.shape(other[:200]), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    lead = one[:shared] if one.isascii() and other.isascii() else ""
    end = max(map(lead.rfind, _LEAD_ENDS)) + 1
    return end if not _LEAD_HAS.isdisjoint(lead[: end - 1]) else len(lead) - len(lead.lstrip(" \t"))


def following(lines: Sequence[str], index: int, step: int = 1) -> Iterator[tuple[int, int]]:
    """Yield (index, length of the prefix) of the lines that follow one; of lines with a prefix those with the same."""
    line, found = lines[index], False
    places = range(index + step, index + step * (_NEAR + 1), step)
    near = [(place, lead(line, lines[place])) for place in places if 0 <= place < len(lines)]
    for place, length in near:
        if lines[place][:length].strip() and lines[place][:length] == line[:length] and lines[place][length:].strip():
            found = True
            yield place, length
    if not found:
        yield from ((place, length) for place, length in near if lines[place][length:].strip())


@dataclass(frozen=True, slots=True)
class Judge:
    """What judges single texts.

    ``line`` masks a line of the window, ``text`` any other, ``value`` the value of a name, ``cut`` the beginning of a
    token; ``names`` tells a text in which a secret may be named, ``random`` one that is drawn by chance.
    """

    line: Callable[[str], str]
    text: Callable[[str], str]
    value: Callable[[str, str], str]
    cut: Callable[[str], str]
    names: Callable[[str], bool]
    random: Callable[[str], bool]


def mask_spread(lines: Sequence[str], telling: Sequence[int], judge: Judge) -> list[str]:
    """Return as many lines; ``telling`` are the indexes of those that may hold a name or a secret."""
    made = mask_private_keys(lines, telling)
    for index in telling:
        if _is_secret_of_kubernetes(lines[index]):
            _mask_data(made, index)
        named = _NAMED.search(lines[index]) if any(word in lines[index] for word in _NAME_WORDS) else None
        if named is not None:
            _mask_named(made, lines, index, named[1], judge)
        place: int | None = index
        while place is not None:
            place = _mask_next(made, lines, place, judge)
    return made


def _is_secret_of_kubernetes(line: str) -> bool:
    return "Secret" in line and re.search(r"[\"']?kind[\"']?:\s*[\"']?Secret\b", line) is not None


def _mask_data(made: list[str], index: int) -> None:
    """Mask the entries below ``data:`` of a Secret; they end where a line is indented no more than that word."""
    indent: int | None = None
    for place in range(index + 1, min(len(made), index + _MOST_DATA)):
        length = lead(made[index], made[place])
        content = made[place][length:]
        depth = length + len(content) - len(content.lstrip())
        if _DATA.match(content.strip()):
            indent = depth
        elif indent is not None and depth <= indent:
            return
        elif indent is not None:
            entry = _ENTRY.match(content.strip())
            if entry is not None:
                made[place] = made[place].replace(entry[1], "[secret:kubernetes-secret]")


def _mask_named(made: list[str], lines: Sequence[str], index: int, name: str, judge: Judge) -> None:
    """Mask the value that stands near the line of its name, before or after it."""
    for step in (1, -1):
        for place, length in following(lines, index, step):
            content = lines[place][length:].strip()
            match = _VALUE.search(lines[place], length)
            if match is not None and match[1].strip():
                shown = judge.value(name, match[1].strip())
                made[place] = f"{lines[place][: match.start(1)]}{shown}{lines[place][match.end(1) :]}"
                return
            if match is not None:
                _mask_below(made, lines, place, name, judge)
                return
            if _STOP.match(content) or _NAMED.search(content):
                break


def _mask_below(made: list[str], lines: Sequence[str], index: int, name: str, judge: Judge) -> None:
    for place, length in following(lines, index):
        before, value, behind = _parts(lines[place][length:])
        made[place] = f"{lines[place][:length]}{before}{judge.value(name, value)}{behind}"
        return


def _parts(content: str) -> tuple[str, str, str]:
    """Return the text before a value, the value, and the text behind it."""
    indent = len(content) - len(content.lstrip())
    match = _AROUND.match(content, indent)
    return (content[:indent] + match[1], match[2], match[3]) if match else (content[:indent], content[indent:], "")


def _mask_next(made: list[str], lines: Sequence[str], index: int, judge: Judge) -> int | None:
    """Mask what the next line has of the secret of a line; returns the next line if it had any."""
    head = lines[index].rstrip()
    end = head[-_LONGEST_OPTION:]
    word = end.rpartition(" ")[2]
    value_follows = (end[-1:] in _OPEN and "</" not in end) or _OPEN_WORD.fullmatch(word) is not None
    opens = value_follows and judge.names(end)
    torn = _is_torn(word)
    if not opens and not torn:
        return None
    place, length = next(following(lines, index), (0, 0))
    if not place or made[place] != lines[place] or "[secret:" in lines[place]:
        return None
    before, value, behind = _parts(lines[place][length:])
    shown = _wrapped(made, head, index, lines[place][length:].strip(), judge) if torn else None
    if shown is None and value and opens:
        shown = _opened(head, value, judge)
    if shown is None:
        return None
    made[place] = f"{lines[place][:length]}{before}{shown}{behind}"
    return place


def _is_torn(word: str) -> bool:
    last = word.rstrip("\"'").rpartition("=")[2] or word
    mixed = any(map(str.isdigit, last)) and any(map(str.isalpha, last))
    return (mixed and _TORN.fullmatch(last) is not None) or last.endswith("]")


def _opened(head: str, value: str, judge: Judge) -> str | None:
    """Return the mark of a value whose name ends the line before, None if the name means no secret."""
    name = _OPENING.sub("", head)
    for glued in (f"{name} {value}", f'{name} "{value}"', f"{name}{value}</x>", f"{name} '{value}')"):
        shown = judge.text(glued)
        mark = re.compile(r"[ \"']{0,2}(\[secret:[a-z0-9-]+\])").match(shown, len(name))
        if mark is not None and shown.startswith(name):
            return mark[1]
    return None


def _wrapped(made: list[str], head: str, index: int, content: str, judge: Judge) -> str | None:
    """Return the mark of the rest of a token that ends the line before, None if none does."""
    rest = _ALONE.match(content)
    if rest is None or not judge.random(rest[1]):
        return None
    shown = judge.line(made[index]).rstrip()
    mark = _MARK_AT_END.search(shown)
    if mark is None:
        shown = judge.cut(head)
        mark = _MARK_AT_END.search(shown) if shown != head else None
    if mark is None:
        return None
    made[index] = shown
    return f"[secret:{mark[1]}]"
