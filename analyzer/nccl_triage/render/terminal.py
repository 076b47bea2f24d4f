"""The diagnosis on a terminal: no boxes, and every line stands for itself under grep.

Meaning never rests on colour: every line begins with a word that says what it is, or is a command or a line of a log.
All lines but the first are indented, so that a verdict in a log is recognised as ours (``ingest.decode.OwnVerdicts``).
``-v`` shows everything that the document has; without it ``short_text`` and ``unknown_text`` choose what decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage import messages
from nccl_triage.render import known_issues, phrases, short_text, similar, unknown_text, verification
from nccl_triage.render.short_text import LINES, VOTE_ID, strongest, votes
from nccl_triage.render.text_page import LEAST, WHOLE, Link, TextPage, commands_of, fold, quoted, telling, window
from nccl_triage.render.verification import outcome_lines
from nccl_triage.render.words import (
    Document,
    Lang,
    RenderOptions,
    certainty,
    columns,
    confidence,
    consequence_phrase,
    culprit_name,
    pick,
    place,
    run_name,
    run_text,
    verification_text,
    visible,
    word,
)
from nccl_triage.render.words import (
    unknown_text as unknown_words,
)

Item = Mapping[str, Any]

__all__ = ["fold", "produce", "render", "strongest"]

#: Bytes of output from which its end repeats the headline: Kubernetes keeps the last 2,048 of a termination message.
_LONG = 2000
#: Problems of the input that are shown without -v.
_PROBLEMS = 2
_MAX_TEXT_LINES = 6


def _sure(what: object, diagnosis: Item, lang: Lang, status: bool = True) -> str:
    """Return what is sure or not, with its confidence and status in brackets."""
    parts = [f"{word('confidence', lang)} {confidence(diagnosis.get('confidence'))}"]
    parts += [certainty(diagnosis, lang)] if status else []
    return word("in_brackets", lang).format(what=what, more=word("comma", lang).join(parts))


def _titled(diagnosis: Item, lang: Lang, status: bool = True) -> str:
    told = _sure(diagnosis.get("cause"), diagnosis, lang, status)
    return word("colon", lang).join((told, pick(diagnosis, "title", lang)))


def _evidence(page: TextPage, indent: int, item: Item) -> None:
    """Add ``path:line: text`` for each line of one piece of evidence, and what it says."""
    texts = str(item.get("text") or "").rstrip("\r\n").split("\n")
    first, last = item.get("line") or 0, item.get("end_line") or 0
    follows = last - first + 1 == len(texts)
    for offset, text in enumerate(texts[:_MAX_TEXT_LINES]):
        path, line = visible(item.get("path") or ""), first + (offset if follows else 0)
        lead = f"{' ' * indent}{path}:{line}: "
        shown = visible(text.rstrip("\r"))
        room = WHOLE
        if page.width:
            shown, room = shown.expandtabs(4), max(page.width - columns(lead), LEAST)
        page.place(" " * indent, f"{path}:{line}", path, line)
        page.lines.append(lead + window(shown, telling(shown, pick(item, "says", "en")), room).text)
    if len(texts) > _MAX_TEXT_LINES:
        page.lines.append(" " * (indent + 2) + f".. {len(texts) - _MAX_TEXT_LINES} {word('more_lines', page.lang)}")
    page.say(indent + 2, word(str(item.get("weight") or "note"), page.lang), pick(item, "says", page.lang))


def _check(page: TextPage, indent: int, diagnosis: Item) -> None:
    """Add the check that tells more, its command, and what a yes and a no would mean."""
    found = diagnosis.get("next_check")
    if not found:
        return
    page.say(indent, word("check", page.lang), pick(found, "what", page.lang))
    if found.get("command"):
        page.command(indent + 2, str(found["command"]))
    for key in ("if_yes", "if_no"):
        page.say(indent + 2, word(key, page.lang), pick(found, key, page.lang))


def _fix(page: TextPage, fix: Item) -> None:
    page.say(2, word("fix", page.lang), pick(fix, "title", page.lang))
    for command in commands_of(fix):
        page.command(4, command)
    page.say(4, word("caution", page.lang), pick(fix, "caution", page.lang), fg="yellow")
    page.say(4, word("applies_to", page.lang), pick(fix, "applies_to", page.lang))


def _stages(page: TextPage, diagnosis: Item) -> None:
    """Add the advice by urgency."""
    for item in diagnosis.get("stages") or []:
        page.say(2, word(f"stage_{item.get('when')}", page.lang), pick(item, "what", page.lang))
        if item.get("command"):
            page.command(4, str(item["command"]))


def _score(page: TextPage, diagnosis: Item) -> None:
    """Add why a candidate has its score: the whole sum, term by term."""
    name = f"{diagnosis.get('cause')} {float(diagnosis.get('score') or 0):.2f}"
    page.say(2, word("score", page.lang), _sure(name, diagnosis, page.lang))
    for term in diagnosis.get("contributions") or []:
        full, applied = float(term.get("log_odds") or 0), float(term.get("applied") or 0)
        amount = f"{applied:+.2f}" if applied == full else f"{applied:+.2f} ({full:+.2f})"
        parts = [amount, word(str(term.get("weight") or ""), page.lang), visible(term.get("id") or "")]
        if term.get("explained_by"):
            parts.append(f"[{word('explained_by', page.lang)} {visible(term['explained_by'])}]")
        places = [] if term.get("id") == VOTE_ID else [place(e) for e in (term.get("events") or [])[:3]]
        tail = f" ({visible(', '.join(places))})" if places else ""
        page.lines.append(f"    {' '.join(parts)}: {visible(pick(term, 'says', page.lang))}{tail}")


def _detailed_cause(page: TextPage, document: Document) -> None:
    """Add a diagnosis with a cause."""
    best, *rivals = document["diagnoses"]
    lang = page.lang
    page.headline(phrases.headline(document, lang))
    title = _titled(best, lang)
    page.say(2, word("root_cause", lang), title, mark=str(best.get("cause")), fg="red", bold=True)
    for culprit in best.get("culprits") or []:
        told = pick(culprit, "why", lang)
        page.say(2, word("culprit", lang), culprit_name(culprit, lang) + (f": {told}" if told else ""))
    page.say(2, word("started", lang), phrases.incident_started(document, lang))
    page.say(2, word("cost_word", lang), phrases.incident_cost(document, lang))
    page.say(2, word("consequences", lang), consequence_phrase(document, lang))
    page.blank()
    voted = votes(best)
    for item in best.get("evidence") or []:
        if str(item.get("says")) not in voted:
            _evidence(page, 2, item)
    for term in best.get("contributions") or []:
        if term.get("id") == VOTE_ID:
            page.say(2, word("similar", lang), pick(term, "says", lang))
    page.say(2, word("meaning", lang), pick(best, "explanation", lang))
    for item in best.get("against") or []:
        page.say(2, word("against", lang), pick(item, "says", lang))
        _evidence(page, 4, {**item, "says": "", "says_zh": ""})
    page.blank()
    _stages(page, best)
    for fix in (best.get("fixes") or [])[:50]:
        _fix(page, fix)
    _check(page, 2, best)
    page.blank()
    for rival in rivals:
        page.say(2, word("or", lang), _titled(rival, lang))


def _detailed_unknown(page: TextPage, document: Document) -> None:
    """Add the candidates of an incident without a cause, each with its strongest line and its check."""
    lang = page.lang
    page.headline(phrases.headline(document, lang))
    said = word("unknown", lang)
    page.say(
        2,
        word("root_cause", lang),
        word("colon", lang).join((said, unknown_words(document, lang))),
        mark=said,
        fg="yellow",
        bold=True,
    )
    page.blank()
    for diagnosis in document.get("diagnoses") or []:
        page.say(2, word("possible", lang), _titled(diagnosis, lang, status=False))
        for item in strongest(diagnosis, 1):
            _evidence(page, 4, item)
        _check(page, 4, diagnosis)
    page.blank()
    for item in document.get("not_seen") or []:
        page.say(2, word("collect", lang), pick(item, "what", lang))
        page.say(4, word("meaning", lang), pick(item, "why", lang))
        for command in commands_of(item):
            page.command(4, command)
    page.blank()


def _recurrence(page: TextPage, document: Document) -> None:
    """Add which hosts of the job failed before."""
    for entry in document.get("recurrence") or []:
        page.say(2, word("history", page.lang), pick(entry, "says", page.lang), fg="yellow")


def _seen(page: TextPage, document: Document) -> None:
    """Add what a healthy job survived."""
    seen = [s for s in document.get("symptoms") or [] if s.get("role") in ("root", "cascade")]
    for symptom in seen[:5]:
        times = f"{symptom.get('signature')} x{symptom.get('count')}"
        page.say(
            2, word("seen", page.lang), word("colon", page.lang).join((times, pick(symptom, "meaning", page.lang)))
        )


def _runs(page: TextPage, document: Document) -> None:
    """Add a line for each run, where the input holds several."""
    found = document.get("runs") or []
    if len(found) < 2:
        return
    for run in found:
        page.say(2, run_name(run, found, page.lang), run_text(run, page.lang))


def _run(page: TextPage, document: Document) -> None:
    """Add which of several runs is told of."""
    found = document.get("runs") or []
    told = next((run for run in found if run.get("told")), None)
    if told is None or len(found) < 2:
        return
    numbers = {"n": told.get("number"), "all": found[-1].get("number")}
    page.say(2, word("run", page.lang), word("runs_told", page.lang).format(**numbers))


def _compared(page: TextPage, document: Document) -> None:
    """Add what differs from the good run, the few differences that matter."""
    found = phrases.compared(document)
    if found is None:
        return
    page.say(2, word("compared_with", page.lang), phrases.good_logs(found))
    for line in phrases.comparison_lines(document, page.lang) or [word("diff_none", page.lang)]:
        page.lines += page.folded(f"    {line}", 6)


def _verification(page: TextPage, document: Document) -> None:
    """Add what the experiments say of each cause, those of one in detail."""
    lang, entries = page.lang, verification.verified(document)
    detail = verification.detailed(entries)
    best = document["diagnoses"][0] if document.get("verdict") == "diagnosed" else None
    for entry in entries:
        text = verification_text(entry, lang)
        page.say(2, word("verification", lang), text if entry is best else f"{entry.get('cause')}: {text}")
        for line in outcome_lines(entry["verification"], lang) if entry is detail else []:
            page.lines += page.folded(f"    {line}", 6)
    if entries:
        _to_confirm(page, document)


def _to_confirm(page: TextPage, document: Document) -> None:
    """Add the command that would test the diagnosis, where none has run and one can."""
    if not verification.needs_command(document):
        return
    command = verification.to_confirm(document)
    lines, note = verification.verify_lines(command), verification.verify_note(command, page.lang)
    page.say(2, word("confirm", page.lang), note or command["launcher"])
    for line in lines:
        page.command(4, line)


def _problems(page: TextPage, document: Document, most: int) -> None:
    found = [
        (source.get("path"), str(problem))
        for source in document.get("inputs") or []
        for problem in source.get("problems") or []
    ]
    for path, problem in found[:most]:
        page.say(2, word("problems", page.lang), f"{path}: {messages.translated_text(problem, page.lang)}", fg="yellow")


def _decisions(page: TextPage, document: Document) -> None:
    """Add which run was chosen, how it ended, and what became of its failures, each by which rule."""
    for item in document.get("decisions") or []:
        at = item.get("line")
        told = f"{item.get('answer')}: {pick(item, 'says', page.lang)}"
        many = f" x{item['number']}" if int(item.get("number") or 1) > 1 else ""
        where = f"{visible(place(at))}{many}; " if at else ""
        page.say(2, word("decided", page.lang), f"{told} [{where}{item.get('rule')}]")


def _detailed(page: TextPage, document: Document) -> None:
    """Add everything."""
    lang, verdict = page.lang, document.get("verdict")
    diagnoses = document.get("diagnoses") or []
    if verdict == "diagnosed" and diagnoses:
        _detailed_cause(page, document)
    elif verdict == "healthy":
        unknown_text.healthy(page, document)
        _seen(page, document)
    else:
        _detailed_unknown(page, document)
    page.say(2, word("restart_word", lang), phrases.restart_in_full(document, lang))
    page.say(2, word("foreign", lang), phrases.foreign_rules_note(document, lang), fg="yellow")
    _recurrence(page, document)
    _runs(page, document)
    _compared(page, document)
    page.blank()
    known_issues.say_all(page, document)
    similar.say(page, document)
    page.blank()
    for line in document.get("telling_lines") or []:
        page.quote(2, word("telling_line", lang), quoted(line))
    page.blank()
    _decisions(page, document)
    for diagnosis in diagnoses:
        _score(page, diagnosis)
    for note in phrases.notes(document, lang):
        page.say(2, word("note", lang), note, fg="yellow")
    _problems(page, document, 1000)
    page.blank()
    causes = [str(d.get("cause")) for d in diagnoses[: 1 if verdict == "diagnosed" else 3]]
    for cause in causes:
        page.say(2, word("more", lang), f"nccl-triage explain {cause}")
    if causes and not verification.verified(document):
        _to_confirm(page, document)
    _verification(page, document)


def _short(page: TextPage, document: Document) -> None:
    """Add what decides: at most 15 lines for an ordinary incident, 20 without a cause, 3 without a failure."""
    lang, verdict = page.lang, document.get("verdict")
    diagnoses = document.get("diagnoses") or []
    most = LINES
    # What tells of this input only: few incidents have any of it.
    beside = TextPage(page.color, page.width, lang)
    beside.say(2, word("foreign", lang), phrases.foreign_rules_note(document, lang), fg="yellow")
    _recurrence(beside, document)
    _run(beside, document)
    _compared(beside, document)
    _problems(beside, document, _PROBLEMS)
    _verification(beside, document)
    for note in _always(document, lang):
        beside.say(2, word("note", lang), note, fg="yellow")
    room = short_text.rows(beside.lines) + 1
    if verdict == "healthy":
        unknown_text.healthy(page, document)
        page.lines += beside.lines
        _notes(page, document, 3)
        return
    if verdict == "diagnosed" and diagnoses:
        plan = short_text.fitting(
            lambda trial, plan: short_text.diagnosed(trial, document, plan), lang, LINES - room, short_text.PLANS
        )
        short_text.diagnosed(page, document, plan)
    else:
        most = unknown_text.LINES
        rough = short_text.fitting(
            lambda trial, plan: unknown_text.unknown(trial, document, plan), lang, most - room, unknown_text.PLANS
        )
        unknown_text.unknown(page, document, rough)
        _similar(page, document, most - room)
    page.lines += beside.lines
    left_out = _notes(page, document, most - 1)
    causes = [str(d.get("cause")) for d in diagnoses[:1]]
    short_text.more(page, document, causes, left_out)


def _similar(page: TextPage, document: Document, most: int) -> None:
    """Add the thread that looks most alike, if there is room."""
    trial = TextPage(False, page.width or short_text.COLUMNS, page.lang)
    similar.say_first(trial, document)
    if short_text.rows([*page.lines, *trial.lines], page.width or short_text.COLUMNS) <= most:
        similar.say_first(page, document)


def _always(document: Document, lang: Lang) -> list[str]:
    """Return the notes that nobody may miss: secrets in the input, and names that are not the true ones."""
    return [note for note in (phrases.secrets_note(document, lang), phrases.pseudonyms_note(document, lang)) if note]


def _notes(page: TextPage, document: Document, most: int) -> int:
    """Add the notes for which there is room, and return how many there was none for."""
    shown = _always(document, page.lang)
    found = [note for note in phrases.notes(document, page.lang) if note not in shown]
    for number, note in enumerate(found):
        trial = TextPage(False, page.width or short_text.COLUMNS, page.lang)
        trial.say(2, word("note", page.lang), note)
        if short_text.rows([*page.lines, *trial.lines], page.width or short_text.COLUMNS) > most:
            return len(found) - number
        page.say(2, word("note", page.lang), note, fg="yellow")
    return 0


def render(
    document: Document, *, color: bool, width: int | None, lang: Lang, verbose: int, link: Link | None = None
) -> str:
    """Return the text for a terminal (``width`` columns) or a pipe (``width`` None)."""
    page = TextPage(color, width, lang, link)
    if verbose:
        _detailed(page, document)
    else:
        _short(page, document)
    while page.lines and not page.lines[-1]:
        page.lines.pop()
    text = "\n".join(page.finished()) + "\n"
    if width is None and len(text.encode("utf-8", "replace")) > _LONG:
        end = TextPage(color, width, lang)
        end.headline(phrases.headline(document, lang))
        text += "\n".join(end.finished()) + "\n"
    return text


def produce(document: Document, view: RenderOptions) -> str:
    """Return the text with the reader's options."""
    return render(document, color=view.color, width=view.width, lang=view.lang, verbose=view.verbose, link=view.link)
