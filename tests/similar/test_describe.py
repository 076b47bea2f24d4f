"""What is said of a thread: in both languages, from our own labels, with what both logs share."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.render import similar
from nccl_triage.similar import describe
from nccl_triage.similar.search import AlikeThread
from nccl_triage.similar.threads import PublicThread

SHARED = ("r:nccl.socket_refused", "s:nccl.socket_refused", "e:RuntimeError", "l:None", "w:refused", "w:ab", "v:nccl 2.18", "h:H100", "j:torchrun")  # fmt: skip


def entry(rules: RuleSet, cause: str, why: str = "", by: str = "") -> dict[str, object]:
    return describe.entry(AlikeThread(PublicThread("https://example.org/1", cause, why, by), 0.5, SHARED), rules)


def test_a_thread_is_told_by_its_cause_its_reason_and_who_confirmed_it(rules: RuleSet) -> None:
    told = entry(rules, "port-in-use", "both jobs use the default port 29500", "maintainer")
    title = rules.causes["port-in-use"].title
    assert told["says"] == f"{title['en']}: both jobs use the default port 29500 (confirmed by a maintainer)"
    assert told["says_zh"] == f"{title['zh']}：两个作业都使用默认端口 29500（经维护者确认）"
    assert told["confirmed_by"] == "maintainer"


def test_a_reason_without_a_translation_is_left_out_of_the_chinese(rules: RuleSet) -> None:
    told = entry(rules, "port-in-use", "a reason of tomorrow")
    assert told["says_zh"] == f"{rules.causes['port-in-use'].title['zh']}（仅依据其日志判断）"


def test_what_nobody_confirmed_is_said_to_be_so(rules: RuleSet) -> None:
    told = entry(rules, "port-in-use")
    assert str(told["says"]).endswith("(judged by its log alone)")
    assert told["confirmed_by"] is None


def test_what_helped_there_is_told_apart_from_what_it_was(rules: RuleSet) -> None:
    thread = PublicThread("https://example.org/1", "port-in-use", "", "maintainer", "EFA installer 1.29 or later")
    told = describe.entry(AlikeThread(thread, 0.5, SHARED), rules)
    assert (told["helped"], told["helped_zh"]) == ("EFA installer 1.29 or later", "EFA installer 1.29 或更高版本")
    assert "EFA" not in str(told["says"])
    assert "helped there: EFA installer" in similar.text({"similar": [told]}, "en", False, None)
    assert "在那里有效的办法：EFA installer" in "".join(similar.markdown({"similar": [told]}, "zh"))
    nothing = entry(rules, "port-in-use")
    assert (nothing["helped"], nothing["helped_zh"]) == (None, None)
    assert "helped" not in similar.text({"similar": [nothing]}, "en", False, None)


def test_a_log_that_does_not_show_its_cause_names_none(rules: RuleSet) -> None:
    told = entry(rules, "unknown", "its process aborted", "never-found")
    assert told["says"] == "The log alone does not show the cause (the thread found no cause)"


def test_what_is_shared_is_listed_by_kind(rules: RuleSet) -> None:
    told = entry(rules, "port-in-use")
    assert told["shared"] == {
        "signatures": ["nccl.socket_refused"], "exceptions": ["RuntimeError"], "words": ["refused"], "versions": ["nccl 2.18"], "hardware": ["H100"],
    }  # fmt: skip
    assert told["why"] == (
        "same message nccl.socket_refused; same exception RuntimeError; same word refused; same version nccl 2.18; "
        "same hardware H100"
    )
    assert "相同消息 nccl.socket_refused；" in str(told["why_zh"])


def test_words_give_way_to_messages() -> None:
    names = [f"s:m{n}" for n in range(5)]
    assert describe.shared([*names, "w:refused"]) == {"signatures": ["m0", "m1", "m2"]}


@pytest.mark.parametrize("by", ["maintainer", "vendor", "PR", "reporter fix", "reporter", "consensus", "article"])
def test_every_way_of_confirming_has_words(rules: RuleSet, by: str) -> None:
    assert "judged by its log" not in str(entry(rules, "port-in-use", by=by)["says"])
