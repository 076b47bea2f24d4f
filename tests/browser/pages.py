"""What tests ask of an open page: its visible texts, its interactive elements, what sticks out."""

from __future__ import annotations

import re
from typing import Any

#: Chinese characters and the punctuation that goes with them.
CJK = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff01-\uffee]")

#: Elements whose texts come from logs, commands or names, and so have no translation.
QUOTED = "code, pre, samp, kbd, [translate=no]"

#: Visible texts of the page, each with what ``wanted`` asks about; big pages have ten thousands, so it asks there.
_TEXTS = """([quoted, wanted]) => {
  const cjk = /[\\u3000-\\u303f\\u3400-\\u9fff\\uff01-\\uffee]/;
  const sentence = /(?<![\\w.\\-\\/])[A-Za-z][a-z']+(?:,? [a-z][a-z']+){2,}(?![\\w\\-\\/])/;
  const own = at => { const told = at.closest('[lang]'); return told === document.documentElement ? '' : told.lang; };
  const ask = {
    any: () => true,
    prose: at => !at.closest(quoted),
    chinese: (at, text) => cjk.test(text),
    untranslated: (at, text) => sentence.test(text) && !cjk.test(text) && own(at) !== 'en' && !at.closest(quoted),
    translated: (at, text) => own(at) === 'zh-Hans' && at.tagName === 'SPAN',
  }[wanted];
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const at = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (text && ask(at, text) && !at.closest('svg title, svg desc, style, script, label')
        && at.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true}))
      found.push(wanted === 'translated' ? at.textContent.trim() : text);
  }
  return found.join('\\u2028');
}"""

_OPEN_ALL = "() => document.querySelectorAll('details').forEach(one => { one.open = true; })"

_STICKING_OUT = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  const scrolls = one => { for (let up = one; up && up !== document.body; up = up.parentElement)
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)) return true; return false; };
  for (const one of document.body.querySelectorAll('*')) {
    const box = one.getBoundingClientRect();
    if (box.width && box.right > wide + 1 && one.checkVisibility({visibilityProperty: true})
        && !scrolls(one.parentElement) && !one.closest('svg *'))
      found.push(`${one.tagName.toLowerCase()}#${one.id}.${one.getAttribute('class')} ends at ${Math.round(box.right)}`);
  }
  if (document.documentElement.scrollWidth > wide) found.push(`page scrolls: ${document.documentElement.scrollWidth}`);
  return found.slice(0, 8);
}"""


def texts(page: Any, wanted: str = "any") -> list[str]:
    """Return the visible texts, the choices of language and theme aside.

    ``wanted`` is ``any``, ``prose`` (not quoted from a log), ``chinese``, ``translated`` (said in Chinese) or
    ``untranslated``: English sentences outside of quotations that are not declared as English.
    """
    found: str = page.evaluate(_TEXTS, [QUOTED, wanted])
    return found.split("\u2028") if found else []


def choose(page: Any, choice: str) -> None:
    """Click what chooses a language or a theme: ``lang-en``, ``lang-zh``, ``theme-auto``, ``theme-dark`` .."""
    page.locator(f"label:has(#{choice})").click()


def open_all(page: Any) -> None:
    """Open everything that folds."""
    page.evaluate(_OPEN_ALL)


def sticking_out(page: Any) -> list[str]:
    """Return the elements wider than the page that no region of their own lets scroll."""
    found: list[str] = page.evaluate(_STICKING_OUT)
    return found


class Watch:
    """Everything that a page says on its console, throws, asks the network for, or pops up."""

    def __init__(self, page: Any) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._listeners = {
            "request": lambda request: self.requests.append(request.url),
            "console": lambda message: self.complaints.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: self.complaints.append(f"error: {error}"),
            "popup": lambda popup: self.complaints.append(f"popup: {popup.url}"),
            "dialog": self._dialog,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def leave(self, page: Any) -> None:
        """Stop watching."""
        for event, listener in self._listeners.items():
            page.remove_listener(event, listener)

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()
