"""A diagnosis of logs that were read only in part, because a signal ended the reading: what it must say of itself."""

from __future__ import annotations

import signal
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.knowledge.amounts import size


def partial(case: Case) -> bool:
    """Tell whether the reading was ended early: who is silent may only be unread."""
    return case.observations.interruption is not None


def describe(case: Case) -> dict[str, Any] | None:
    """Return what was read, None where all was."""
    found = case.observations.interruption
    if found is None:
        return None
    files = case.observations.sources.values()
    return {
        "signal": signal.Signals(found.signal).name,
        "bytes_read": found.read,
        "bytes": found.size,
        "files_read": sum(not info.stopped for info in files),
        "files": len(files),
    }


def marked(case: Case, headline: dict[str, str]) -> dict[str, str]:
    """Return the headline of a document, which says on top that the document is partial."""
    found = case.observations.interruption
    if found is None:
        return headline
    if found.size:
        read = f"{size(found.read)} of {size(found.size)}", f"{size(found.size)} 中的 {size(found.read)}"
    else:
        read = size(found.read), size(found.read)
    return {
        "en": f"PARTIAL, reading was interrupted after {read[0]}. {headline['en']}",
        "zh": f"不完整：读取在 {read[1]} 处被中断。{headline['zh']}",
    }


def notes(case: Case) -> list[dict[str, str]]:
    """Return what the reader must know of a partial document."""
    found = describe(case)
    if found is None:
        return []
    name, complete, files = found["signal"], found["files_read"], found["files"]
    return [
        {
            "en": f"Reading was interrupted by {name}: {complete} of {files} inputs were read to their end. What is "
            "missing may only be unread: ranks that seem silent are not counted as silent, and no cause is called "
            "established. Run it again to read everything.",
            "zh": f"读取被 {name} 中断：{files} 个输入中有 {complete} 个读完。缺少的内容可能只是尚未读取：看似沉默的 rank "
            "不计为沉默，任何原因都不视为已确立。请重新运行以读取全部内容。",
        }
    ]
