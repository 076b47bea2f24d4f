"""The page of incidents: what the terminal shows for labelled logs of every cause, to be read by eye."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from reports.examples.render import within

ROOT = Path(__file__).resolve().parents[1]
#: Labelled cases, at least one of each cause: some recorded on real processes, some written by hand.
INCIDENTS = (
    "recorded/cri_shape_w4",
    "written/B054",
    "recorded/deepspeed_batch_none_w2",
    "recorded/overlapped_w4",
    "written/A010",
    "recorded/half_config_w3",
    "written/V9B046-keyerror-pdsh-ssh-args-append-with-ssh-port",
    "written/B054",
    "recorded/script_missing_w2",
    "written/B006",
    "recorded/ddp_unused_all_w2",
    "recorded/nccl_no_driver_w2",
    "recorded/nccl_duplicate_gpu_w2",
    "recorded/torchless_host_w4",
    "written/B038",
    "recorded/nccl_ecc_in_init_w4",
    "written/A130",
    "written/V10",
    "recorded/nccl_device_memory_in_init_w4",
    "written/B044",
    "written/A066",
    "written/p16",
    "recorded/nccl_start_w2",
    "recorded/hostoom_allocator_w2",
    "written/B021",
    "recorded/time_limit_w4",
    "written/B033",
    "recorded/nccl_setting_net_name_w4",
    "written/V12",
    "recorded/nccl_versions_2193_2215_w2",
    "recorded/firewall_pair_w3",
    "written/A048",
    "written/p09",
    "written/p08",
    "recorded/net_loss_70_w4",
    "written/p18",
    "recorded/nccl_plugin_no_provider_w4",
    "recorded/ray_gloo_two_subnets_w2",
    "recorded/net_hostname_127_w4",
    "written/A001",
    "recorded/ray_nan_w2",
    "written/B068",
    "recorded/cpu_time_limit_w3",
    "recorded/ray_gpus_never_w4",
    "written/A092",
    "recorded/port_taken_w4",
    "recorded/alarm_w4",
    "written/B089",
    "recorded/budget_w3",
    "written/A094",
    "recorded/ray_gcs_killed_w2",
    "recorded/index_first_w6",
    "written/A024",
    "written/B076",
    "recorded/sigbus_w2",
    "written/A111",
    "recorded/disk_no_inodes_w2",
    "written/B030",
    "recorded/ray_late_w2",
    "written/F25-llamafactory-streaming-images",
    "recorded/sighup_bare_w3",
    "recorded/short_group_w4",
    "written/A077",
    "recorded/net_mtu_hole_w2",
    "written/S06",
    "written/B119",
)


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Return the report documents of the incidents by set and id; their paths are those below the project."""
    from nccl_triage import diagnose
    from nccl_triage.evaluation import cases

    logs = {
        f"{folder}/{case.id}": case.log.relative_to(ROOT)
        for folder in ("recorded", "written")
        for case in cases.read(ROOT / "corpus" / folder)
    }
    with within(ROOT):
        return {name: diagnose(logs[name]).to_dict() for name in INCIDENTS}


def _code(text: str) -> str:
    """Return a text as inline code, whatever backticks it holds."""
    marks = "``" if "`" in text else "`"
    inner = f" {text} " if "`" in text else text
    return f"{marks}{inner}{marks}"


def incident(name: str, document: dict[str, Any]) -> str:
    """Return an incident: headline in both languages, the line that proves it, and what to do first."""
    from nccl_triage.render import render
    from nccl_triage.render.short_text import COLUMNS, strongest
    from nccl_triage.render.text_page import chosen, quoted, steps

    best = document["diagnoses"][0] if document["diagnoses"] else {}
    lines = len(render(document, "text", width=COLUMNS).decode().splitlines())
    cause = best.get("cause") if document["verdict"] == "diagnosed" else document["verdict"]
    found = [f"**{cause}** ({name}, {lines} lines)  ", f"{document['headline']}  ", f"{document['headline_zh']}"]
    for item in strongest(best, 1):
        found.append(f"- {_code(quoted(item, document['headline']).text)}")
    for step in chosen(steps(best, "en"), 3)[:1]:
        command = f": {_code(step.commands[0])}" if step.commands else ""
        found.append(f"- {step.what.rstrip('.')}{command}")
    return "\n".join(found)


_ABOUT = """# Incidents
What the terminal says first of a log of every cause: the headline in English and Chinese, the line that proves it, and
the first thing to do. In brackets: the case below `corpus/`, and the lines that a terminal of 100 columns shows."""


def page() -> str:
    """Return the page with all incidents, in the order of their causes."""
    told = [incident(name, document) for name, document in documents().items()]
    return "\n\n".join([_ABOUT, *sorted(told)])
