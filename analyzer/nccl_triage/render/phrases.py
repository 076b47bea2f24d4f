"""Phrases that the formats share: a cause in brief, the incident, a suspected hang, a comparison with a good run, notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import (
    Document,
    Lang,
    certainty,
    confidence,
    culprit_name,
    pick,
    place,
    rank_ranges,
    verification_text,
    visible,
    word,
)

#: Unit -> seconds, the largest first.
_UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))


def duration(seconds: float, lang: Lang) -> str:
    """Return a span in its two largest units, as ``1 h 5 min``."""
    left = round(seconds)
    if left < 1:
        return word("under_a_second", lang)
    parts: list[str] = []
    for name, size in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(word(f"span_{name}", lang).format(n=number) if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def incident_started(document: Document, lang: Lang) -> str:
    """Return when the failure started, empty when unknown."""
    found = document.get("incident") or {}
    if not found.get("started"):
        return ""
    return word("started_about" if found.get("about") else "started_at", lang).format(time=found["started"])


def hours(number: float) -> str:
    """Return a number of hours with as many digits as tell something."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def incident_cost(document: Document, lang: Lang) -> str:
    """Return the duration of the failure and its rank-hours, empty when unknown."""
    found = document.get("incident") or {}
    seconds, ranks, lost = (found.get(key) for key in ("seconds", "ranks", "rank_hours"))
    if not isinstance(seconds, (int, float)):
        return ""
    span = duration(seconds, lang)
    if not ranks or not isinstance(lost, (int, float)):
        return word("lasted", lang).format(span=span)
    key = f"cost{'_at_least' if found.get('at_least') else ''}{'_one' if ranks == 1 else ''}"
    return word(key, lang).format(span=span, ranks=ranks, hours=hours(lost))


#: The order of the steps when the other ranks began to wait only after the fault.
_FAULT_FIRST = ("story_progress", "story_fault", "story_sign", "story_waiting", "story_consequence", "story_end")


class StoryStep(NamedTuple):
    """One step of the story: a word for what it is, who and when, and the line that shows it."""

    key: str
    point: Mapping[str, Any]


def incident_story(document: Document) -> list[StoryStep]:
    """Return the steps from the last progress to the end, each with its line; a line makes one step only."""
    found = document.get("incident") or {}
    fault = found.get("first_fault") or {}
    cascade = next(
        (
            event
            for event in document.get("timeline") or []
            if event.get("role") == "cascade" and not _same(event, fault) and not _before(event, fault, document)
        ),
        None,
    )
    steps = [
        StoryStep("story_progress", found.get("last_progress") or {}),
        StoryStep("story_waiting", found.get("waiting_since") or {}),
        StoryStep("story_sign" if fault.get("role") == "cascade" else "story_fault", fault),
        StoryStep("story_consequence", cascade or {}),
        StoryStep("story_end", found.get("end") or {}),
    ]
    told: list[StoryStep] = []
    for step in steps:
        point = step.point
        repeated = any(_same(point, other.point) for other in told) and step.key == "story_end"
        repeated |= step.key == "story_progress" and _same(point, fault)
        if point and not repeated:
            told.append(step)
    if _is_later(told, "story_waiting", "story_fault") or _is_later(told, "story_waiting", "story_sign"):
        told.sort(key=lambda step: _FAULT_FIRST.index(step.key))
    return told


def _same(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    return (one.get("path"), one.get("line")) == (two.get("path"), two.get("line"))


def _before(event: Mapping[str, Any], fault: Mapping[str, Any], document: Document) -> bool:
    """Tell whether an event stands before the fault in the order of the timeline."""
    places = {(e.get("path"), e.get("line")): i for i, e in enumerate(document.get("timeline") or [])}
    at = places.get((fault.get("path"), fault.get("line")))
    return at is not None and places[event.get("path"), event.get("line")] < at


def _is_later(steps: list[StoryStep], one: str, two: str) -> bool:
    """Tell whether step ``one`` has a printed time after that of step ``two``."""
    times = {step.key: step.point.get("time") for step in steps}
    first, second = times.get(one), times.get(two)
    return bool(first and second and str(first) > str(second))


def who(point: Mapping[str, Any], lang: Lang) -> str:
    """Return the rank and host of a step, or nothing where the line names none."""
    if point.get("rank") is None and not point.get("host"):
        return ""
    return culprit_name({"rank": point.get("rank"), "host": point.get("host")}, lang)


#: Hosts that the decision on a restart names.
_EXCLUDED = 3


def restart_text(document: Document, lang: Lang) -> str:
    """Return the decision on a restart in a few words, empty where there is none."""
    found = document.get("restart") or {}
    hosts = word("list_comma", lang).join(visible(host, 60) for host in (found.get("exclude") or [])[:_EXCLUDED])
    more = len(found.get("exclude") or []) - _EXCLUDED
    hosts += f" +{more}" if more > 0 else ""
    return word(f"decision_{found['decision']}", lang).format(hosts=hosts) if found.get("decision") else ""


def restart_in_full(document: Document, lang: Lang) -> str:
    """Return the decision on a restart with its whole reason."""
    told = (restart_text(document, lang), pick(document.get("restart") or {}, "why", lang))
    return word("colon", lang).join(filter(None, told))


def restart_line(document: Document, lang: Lang) -> str:
    """Return the decision and what tells most beside it: how often the same cause came back, else the reason."""
    found = document.get("restart") or {}
    repeats = found.get("repeats")
    reason = pick(repeats, "says", lang) if repeats else "" if found.get("exclude") else pick(found, "why", lang)
    return word("colon", lang).join(part for part in (restart_text(document, lang), reason) if part)


#: Maximum number of last lines shown.
_HANG_LINES = 4
_HANG_ADVICE = {
    "en": "While it hangs, run nccl-triage hang on one of its hosts, before restarting anything: it takes the stacks of all "
    "ranks and says which one is elsewhere.",
    "zh": "趁进程仍在、尚未重启：在作业的一台主机上运行 nccl-triage hang，它会采集所有 rank 的调用栈，并指出谁停在别处。",
}


def hang_sentence(hang: Mapping[str, Any], lang: Lang) -> str:
    """Return the suspicion in a line or two, without advice."""
    since, step = str(hang.get("since") or "")[11:19], hang.get("last_step")
    spans = [_span(float(hang.get(key) or 0), lang) for key in ("seconds", "usual_step_seconds")]
    silent, printing, behind = (rank_ranges(hang.get(f"{key}_ranks") or []) for key in ("silent", "printing", "behind"))
    if lang == "zh":
        parts = [f"疑似挂起：自 {since} 起已 {spans[0]} 没有进展" + ("" if step is None else f"，最后一步为 {step}")]
        parts[0] += f"；通常一步需要 {spans[1]}"
        parts += [f"落后的 rank：{behind}"] * bool(behind) + [f"沉默的 rank：{silent}"] * bool(silent)
        parts += [f"仍在输出的 rank：{printing}"] * bool(printing)
        parts += ["最后的输出表明可能正在进行耗时较长的工作"] * bool(hang.get("announced"))
        return "；".join(parts) + "。"
    parts = [f"hang suspected: no progress since {since}" + ("" if step is None else f", step {step}")]
    parts[0] += f", for {spans[0]}; a step usually takes {spans[1]}"
    parts += [f"behind: rank {behind}"] * bool(behind) + [f"silent: rank {silent}"] * bool(silent)
    parts += [f"still printing: rank {printing}"] * bool(printing)
    parts += ["the last lines announce work that may take a long time"] * bool(hang.get("announced"))
    return "; ".join(parts)


def hang_lines(hang: Mapping[str, Any], lang: Lang) -> list[str]:
    """Return the last lines of the processes, the most telling first, and advice."""
    said = [f"{place(item)}: {visible(item.get('text') or '')}" for item in hang.get("last_lines") or []]
    return [*said[:_HANG_LINES], _HANG_ADVICE[lang]]


def hang_note(hang: Mapping[str, Any]) -> dict[str, str]:
    """Return the note of a report in both languages."""
    english = hang_sentence(hang, "en")
    return {
        "en": f"{english[0].upper()}{english[1:]}. {_HANG_ADVICE['en']}",
        "zh": f"{hang_sentence(hang, 'zh')}{_HANG_ADVICE['zh']}",
    }


def _span(seconds: float, lang: Lang) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds, lang)


#: Maximum number of differences in a summary, and of characters of a value.
SHORT, MAX_VALUE = 5, 160
#: Subjects listed in a summary even when they support no cause; mere consequences of the failure are not.
_TELLING = ("variable", "version", "interface", "transport", "world", "topology", "algorithm", "pace")


class DifferenceRow(NamedTuple):
    """One difference: subject and name, the values of both runs, and where they stand."""

    subject: Pair
    name: str
    good: str
    bad: str
    good_at: Mapping[str, Any]
    at: Mapping[str, Any]
    causes: tuple[str, ...]


def compared(document: Document) -> Mapping[str, Any] | None:
    """Return the comparison of a document, None where there was nothing to compare."""
    found: Mapping[str, Any] | None = document.get("baseline")
    return found


def good_logs(found: Mapping[str, Any]) -> str:
    """Return the names of the good run's logs."""
    names = [visible(log.get("path")) for log in found.get("good") or []]
    more = int(found.get("logs") or 0) - len(names)
    return ", ".join([*names, *([f".. +{more}"] if more > 0 else [])])


def difference_rows(found: Mapping[str, Any]) -> list[DifferenceRow]:
    """Return the differences, first where the runs part."""
    parted = found.get("divergence")
    return [_difference_row(entry) for entry in [*([parted] if parted else []), *(found.get("differences") or [])]]


def _difference_row(entry: Mapping[str, Any]) -> DifferenceRow:
    subject = f"diff_{entry.get('subject')}"
    ratio = entry.get("ratio")
    bad = _value(entry.get("bad")) + (f" (x{ratio:g})" if isinstance(ratio, (int, float)) else "")
    return DifferenceRow(
        Pair(word(subject, "en"), word(subject, "zh")),
        visible(entry.get("name"), MAX_VALUE),
        _value(entry.get("good")),
        bad,
        entry.get("good_at") or {},
        entry,
        tuple(str(cause) for cause in entry.get("causes") or ()),
    )


def _value(value: object) -> str:
    return "-" if value is None else visible(value, MAX_VALUE)


def comparison_lines(document: Document, lang: Lang) -> list[str]:
    """Return the comparison in a few lines: where the runs part, and the differences that matter."""
    found = compared(document)
    if found is None or (not found.get("divergence") and not found.get("differences")):
        return []
    parted, differences = found.get("divergence"), found.get("differences") or []
    chosen = [d for d in differences if _matters(d)][:SHORT]
    told = [_difference_line(_difference_row(entry), lang) for entry in [*([parted] if parted else []), *chosen]]
    left = int(found.get("total") or 0) - len(chosen)
    return [*told, *([word("diff_more", lang).format(n=left)] if left > 0 else [])]


def _matters(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("causes")) or entry.get("subject") in _TELLING or entry.get("when") == "before"


def _difference_line(row: DifferenceRow, lang: Lang) -> str:
    good = f"{row.good} ({visible(place(row.good_at))})" if row.good_at else row.good
    subject = row.subject.zh if lang == "zh" else row.subject.en
    name = f" {row.name}" if row.name else ""
    return f"{subject}{name}: {good} -> {row.bad} ({visible(place(row.at))})"


#: Maximum number of foreign rule files named in a sentence.
_FILES = 4


def secrets_note(document: Document, lang: Lang) -> str:
    """Return which kinds of secrets the input held, or nothing when it held none."""
    kinds = (document.get("redaction") or {}).get("secrets") or []
    return word("secrets_masked", lang).format(kinds=", ".join(map(str, kinds))) if kinds else ""


def pseudonyms_note(document: Document, lang: Lang) -> str:
    """Return what pseudonyms stand for and how many of them, or nothing when the names are the true ones."""
    counts = (document.get("redaction") or {}).get("pseudonyms")
    if counts is None:
        return ""
    found = ", ".join(f"{word(f'pseudonym_{kind}', lang)} {count}" for kind, count in counts.items())
    return word("pseudonyms", lang).format(counts=found or word("pseudonyms_none", lang))


def foreign_rules_note(document: Document, lang: Lang) -> str:
    """Return which rules that are not shipped took part, or nothing where none did: a verdict may be theirs alone."""
    files = document.get("foreign_rules") or []
    told = [f"{file.get('path')} ({', '.join(map(str, file.get('ids') or []))})" for file in files[:_FILES]]
    told += [f".. +{len(files) - _FILES}"] if len(files) > _FILES else []
    return word("foreign_rules", lang).format(rules=", ".join(told)) if told else ""


def notes(document: Document, lang: Lang) -> list[str]:
    """Return all notes, one line each."""
    told = (document.get("notes_zh") if lang == "zh" else None) or document.get("notes") or []
    shown = [" ".join(str(note).split()) for note in told]
    return [*shown, *(text for text in (secrets_note(document, lang), pseudonyms_note(document, lang)) if text)]


#: First character of the name of standard input, which no link can open.
_NO_FILE = "<"


def headline(document: Document, lang: Lang) -> str:
    """Return what happened as one sentence, or the verdict's name where an older document has none."""
    return visible(pick(document, "headline", lang) or word(str(document.get("verdict")), lang))


def confidence_text(diagnosis: Mapping[str, Any], lang: Lang) -> str:
    """Return ``confidence 0.93, established``."""
    told = visible(certainty(diagnosis, lang))
    return f"{word('confidence', lang)} {confidence(diagnosis.get('confidence'))}, {told}"


def cause_lines(diagnosis: Mapping[str, Any], lang: Lang, leads: bool = True) -> list[str]:
    """Return a cause in a few lines free of control characters.

    A leading cause comes with its culprits and first fix, a merely possible one with the check that would tell more.
    """
    named = f"{diagnosis.get('cause')} ({confidence_text(diagnosis, lang)}): {pick(diagnosis, 'title', lang)}"
    found = [("root_cause" if leads else "possible", named)]
    for culprit in diagnosis.get("culprits") or [] if leads else []:
        why = pick(culprit, "why", lang)
        found.append(("culprit", culprit_name(culprit, lang) + (f": {why}" if why else "")))
    found.append(("verification", verification_text(diagnosis, lang)))
    if leads:
        found += [("fix", pick(fix, "title", lang)) for fix in (diagnosis.get("fixes") or [])[:1]]
    else:
        found.append(("check", pick(diagnosis.get("next_check") or {}, "what", lang)))
    return [f"{word(key, lang).lower()}: {visible(text)}" for key, text in found if text]


def is_file(path: object) -> bool:
    """Tell whether a path of the document names a file."""
    return isinstance(path, str) and bool(path) and not path.startswith(_NO_FILE)


def shown_text(item: Mapping[str, Any]) -> str:
    """Return the log lines of one piece of evidence, free of control characters."""
    return "\n".join(visible(line) for line in str(item.get("text") or "").rstrip("\r\n").split("\n"))
