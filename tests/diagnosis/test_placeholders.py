"""Commands name the host and the address of the log where it decides, and nothing that a shell would act on."""

from __future__ import annotations

import pytest

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.culprit import Culprit
from nccl_triage.engine.expression import parse
from nccl_triage.engine.functions import FUNCTIONS
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import scan_text

WHY = {"en": "", "zh": ""}


def culprit(host: str | None, gpu: int | None = None) -> Culprit:
    return Culprit(rank=None, host=host, address=None, pid=None, gpu=gpu, why=WHY)


def known(rules: RuleSet, *culprits: Culprit, text: str = "") -> dict[str, str]:
    return placeholders.command_words(Case(scan_text(text, rules), rules), culprits)


def test_one_host_fills_the_blank(rules: RuleSet) -> None:
    found = known(rules, culprit("node037", 3))
    assert (
        placeholders.fill_words("scontrol update nodename=HOST state=drain", found)
        == "scontrol update nodename=node037 state=drain"
    )
    assert placeholders.fill_words("nvidia-smi --gpu-reset -i GPU_INDEX", found) == "nvidia-smi --gpu-reset -i 3"


XID = "NVRM: Xid (PCI:0000:{}:00): 79, pid=77, GPU has fallen off the bus.\n"
SXID = "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"


def test_the_gpu_that_the_driver_reports_is_named_by_its_address(rules: RuleSet) -> None:
    reset = "nvidia-smi --gpu-reset -i GPU_INDEX"
    found = known(rules, culprit("node037", 3), text=XID.format("3b") + SXID)
    assert placeholders.fill_words(reset, found) == "nvidia-smi --gpu-reset -i 0000:3b:00.0"
    assert placeholders.fill_words(reset, known(rules, text=XID.format("3b") + XID.format("5d"))) == reset
    assert placeholders.fill_words(reset, known(rules, text=SXID)) == reset


SUBNET = (
    "gpu1:10:11 [0] misc/socket.cc:237 NCCL WARN Net : No interface found in the same subnet as remote address {}<2>\n"
)


def test_the_only_peer_that_the_faults_name_is_filled_in(rules: RuleSet) -> None:
    one, two = (SUBNET.format(address) for address in ("10.40.80.68", "10.40.80.69"))
    assert (
        placeholders.fill_words("ip route get PEER_ADDRESS", known(rules, text=one * 2)) == "ip route get 10.40.80.68"
    )
    assert "PEER_ADDRESS" not in known(rules, text=one + two)
    assert "PEER_ADDRESS" not in known(rules, text=SUBNET.format("$(reboot)"))


def test_two_hosts_leave_it_open(rules: RuleSet) -> None:
    found = known(rules, culprit("node037"), culprit("node038"))
    assert placeholders.fill_words("sbatch --exclude=HOST", found) == "sbatch --exclude=HOST"


def test_variables_and_longer_names_are_no_blanks(rules: RuleSet) -> None:
    found = known(rules, culprit("n1"))
    for command in ("echo $HOST", "HOST=a run", "echo ${HOST}x MYHOST HOSTNAME"):
        assert placeholders.fill_words(command, found) == command


@pytest.mark.parametrize("name", ["a;rm -rf /", "$(id)", "`id`", "a b", "-rf", "a\nb", "", "|x", "a'b"])
def test_a_name_that_a_shell_would_act_on_is_not_put_in(rules: RuleSet, name: str) -> None:
    assert placeholders.fill_words("ssh HOST", known(rules, culprit(name))) == "ssh HOST"


def test_the_address_that_could_not_be_reached(rules: RuleSet) -> None:
    text = "a:1:2 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.7<51873> failed : Connection refused\n"
    assert placeholders.fill_words("ip route get PEER_ADDRESS", known(rules, text=text)) == "ip route get 10.0.0.7"


def test_the_peer_of_the_evidence_where_no_connection_was_refused(rules: RuleSet) -> None:
    text = "RuntimeError: [/x/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.2]:48857: Connection timed out\n"
    case = Case(scan_text(text * 2 + text.replace("10.0.0.2", "10.0.0.3"), rules), rules)
    words = placeholders.command_words(case, [], [event for event in case.events if "peer" in event.fields])
    assert placeholders.fill_words("ping PEER_ADDRESS", words) == "ping 10.0.0.2"


def test_in_kubernetes_a_host_is_a_pod(rules: RuleSet) -> None:
    evicted = "ml 4m11s Warning Evicted pod/a-1 The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi.\n"
    words = known(rules, culprit("a-1"), text=evicted)
    assert placeholders.fill_words("kubectl describe pod POD", words) == "kubectl describe pod a-1"
    assert placeholders.fill_words("kubectl cordon NODE", words) == "kubectl cordon NODE"
    assert placeholders.fill_words("sbatch --exclude=NODE", known(rules, culprit("a-1"))) == "sbatch --exclude=a-1"


@pytest.mark.parametrize(
    ("file", "command"), [("/job/pretrain.py", "pgrep -f /job/pretrain.py"), ("/job/$(id).py", "pgrep -f SCRIPT")]
)
def test_the_script_of_the_job(file: str, command: str, rules: RuleSet) -> None:
    text = f'Traceback (most recent call last):\n  File "{file}", line 3, in <module>\n    main()\nKeyError: 1\n'
    assert placeholders.fill_words("pgrep -f SCRIPT", known(rules, text=text)) == command


def test_the_job_of_a_step(rules: RuleSet) -> None:
    text = "slurmstepd: error: *** STEP 4711.0 ON node001 CANCELLED AT 2025-06-03T18:00:00 DUE TO TIME LIMIT ***\n"
    assert placeholders.fill_words("sacct -j JOBID", known(rules, text=text)) == "sacct -j 4711"


def test_a_placeholder_in_a_command_becomes_one_word_of_the_shell(rules: RuleSet) -> None:
    case = Case(scan_text("a:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to $(reboot)\n", rules), rules)
    assert placeholders.fill_command("ip addr show {env:NCCL_SOCKET_IFNAME}", case) == "ip addr show '$(reboot)'"
    assert (
        placeholders.fill_command("awk '{print $1}' {env:NCCL_SOCKET_IFNAME}", case) == "awk '{print $1}' '$(reboot)'"
    )


def test_a_command_with_a_gap_is_left_out(rules: RuleSet) -> None:
    case = Case(scan_text("OSError: [Errno 98] Address already in use\n", rules), rules)
    assert placeholders.fill_command("ss -ltnp sport = :{f:port}", case, case.events) is None
    assert placeholders.fill_command("ss -ltnp", case, case.events) == "ss -ltnp"


def test_a_command_is_filled_with_fields_of_the_evidence(rules: RuleSet) -> None:
    text = "[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n"
    case = Case(scan_text(text, rules), rules)
    assert placeholders.fill_command("ss -ltnp sport = :{f:port}", case, case.events) == "ss -ltnp sport = :29500"


def test_a_line_and_its_fields_are_told(rules: RuleSet) -> None:
    case = Case(scan_text("    assert args.batch_size % len(devices) == 0\n", rules), rules)
    line = next(event for event in case.events if event.signature == "training.assert_batch_modulo")
    assert placeholders.fill("Failed: {f:text}.", case, [line], "en") == (
        "Failed: assert args.batch_size % len(devices) == 0."
    )
    assert placeholders.fill_command("echo {f:text}", case, [line]) == (
        "echo 'assert args.batch_size % len(devices) == 0'"
    )


def test_the_log_itself_is_named_as_one_word_of_the_shell(rules: RuleSet) -> None:
    case = Case(scan_text("x", rules, path="my logs/a b.log"), rules)
    assert (
        placeholders.fill_words("nccl-triage verify LOG", placeholders.command_words(case, []))
        == "nccl-triage verify 'my logs/a b.log'"
    )
    for name in ("<stdin>", "-", "-rf"):
        case = Case(scan_text("x", rules, path=name), rules)
        assert placeholders.fill_words("grep a LOG", placeholders.command_words(case, [])) == "grep a LOG"


def test_one_rank_is_no_plural(rules: RuleSet) -> None:
    lines = "[rank{}]:[E ProcessGroupNCCL.cpp:607] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=6000) ran for 6001 milliseconds before timing out.\n"
    for ranks, said in (((1,), "Rank 1 gave up"), ((1, 3), "Ranks 1, 3 gave up"), ((), "Ranks unknown gave up")):
        case = Case(scan_text("".join(lines.format(rank, rank) for rank in ranks) or "x\n", rules), rules)
        assert placeholders.fill("Ranks {fact:collective.timed_out_ranks} gave up", case, [], "en") == said


def test_sizes_can_be_compared(rules: RuleSet) -> None:
    text = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 4.29 GiB already allocated; 10.12 MiB free)"
    conditions = Conditions(Case(scan_text(text, rules), rules))
    names = set(FUNCTIONS)

    def holds(source: str) -> bool:
        return conditions.holds(parse(source, "t:1", names))[0]

    assert holds("size(value('cuda.oom_old', 'size')) == 20 * 1024 * 1024")
    assert holds("size(value('cuda.oom_old', 'allocated')) > size(value('cuda.oom_old', 'free'))")
    assert not holds("size('many bytes') > 0")


def test_a_part_in_brackets_is_left_out_without_a_value(rules: RuleSet) -> None:
    log = "PermissionError: [Errno 13] Permission denied: '/data/a'\nPermissionError: [Errno 13] Permission denied\n"
    case = Case(scan_text(log, rules), rules)
    told, *bare = case.of("storage.eacces")
    text = "refuses access[ to {f:path}]."
    assert placeholders.fill(text, case, [told], "en") == "refuses access to /data/a."
    assert placeholders.fill(text, case, bare[:1], "en") == "refuses access."
    assert placeholders.fill("to {f:path}", case, bare[:1], "en") == "to unknown"
    assert placeholders.tells(text, case, bare[:1]) and not placeholders.tells("to {f:path}", case, bare[:1])
    assert placeholders.fill("[0] {f:path} [x]", case, [told], "en") == "[0] /data/a [x]", (
        "brackets without a placeholder"
    )
    assert placeholders.fill_command("test [ -d {f:path} ]", case, [told]) == "test [ -d /data/a ]"
