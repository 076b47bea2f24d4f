"""The scripts for Slurm, with stand-ins for its commands that answer as Slurm 22.05 does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import EXAMPLES, PATIENCE, Commands

SLURM = EXAMPLES / "slurm"
FAILED = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
HEALTHY = "step 1 loss 2.5\nstep 2 loss 2.4\nTraining finished.\n"
#: As ``scontrol show job`` prints it; the name, which anybody chooses, imitates other fields.
RECORD = """JobId={job}{array} JobName=StdOut=/etc/passwd
   UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   StartTime={start} EndTime=2026-11-20T12:00:00 Deadline=N/A
   Comment=JobState=COMPLETED
   WorkDir={workdir}
   StdErr={stdout}
   StdIn=/dev/null
   StdOut={stdout}
   Power=
"""
#: Names that shells, globs and options take for something else.
HOSTILE = [
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "$(touch pwned) `touch pwned`; touch pwned",
    "a*[1]?",
    "-rf",
    "数据",
]


class Site:
    """A node with the scripts installed, and one job whose output lies in ``runs``."""

    job = "4711"

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands = commands
        self.scripts = folder / "libexec"
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.records = folder / "record"
        self.log = folder / "syslog"
        shutil.copytree(SLURM, self.scripts)
        commands.add("logger", f'printf "%s\\n" "$*" >>"{self.log}"')
        commands.add("scontrol", f'case $2 in hostnames) printf "n1\\nn2\\n" ;; job) cat "{self.records}" 2>&1 ;; esac')
        for become in ("setpriv", "sudo"):
            commands.add(
                become, f'echo "{become} $*" >"{folder}/became"\nwhile [[ $1 != */* ]]; do shift; done\nexec "$@"'
            )
        self.became = folder / "became"
        self.configure()

    def configure(self, *lines: str) -> None:
        first = f"PATH={self.commands.env['PATH']}\nTRIAGE={self.commands.folder}/nccl-triage\n"
        (self.scripts / "epilog.conf").write_text(first + "\n".join(lines), encoding="utf-8")

    def record(self, stdout: Path, state: str = "FAILED", array: str = "", job: str | None = None) -> None:
        """Have scontrol know the job, as one that started a minute ago."""
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 60))
        text = RECORD.format(
            job=job or self.job, array=array, state=state, start=start, workdir=self.runs, stdout=stdout
        )  # fmt: skip
        with self.records.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def stand_in_triage(self, then: str = "") -> Path:
        """Have nccl-triage only write down what it was told; returns where."""
        told = self.commands.folder / "told"
        self.commands.add(
            "nccl-triage", f'printf "%s\\0" "$@" >"{told}.part"\n{then}\nmv "{told}.part" "{told}"'
        )  # fmt: skip
        return told

    def epilog(self, **env: str) -> None:
        """Run the epilog as slurmd does: few variables, no PATH, and what it leaves in its process group dies."""
        variables = {
            "SLURM_JOB_ID": self.job,
            "SLURM_JOB_UID": "1001",
            "SLURM_JOB_GID": "1001",
            "SLURM_NODELIST": "n[1-2]",
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_WORK_DIR": str(self.runs),
            "SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
            **env,
        }
        process = subprocess.Popen(
            [self.scripts / "epilog.sh"], env=variables, cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        said = process.communicate(timeout=PATIENCE)[0]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert (process.returncode, said) == (0, "")

    def logged(self) -> str:
        """Wait for what the epilog says in the system log."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.log.exists() and self.log.read_text(encoding="utf-8").endswith("\n"):
                return self.log.read_text(encoding="utf-8")
            time.sleep(0.02)
        raise AssertionError("the epilog said nothing")


def told(path: Path) -> list[str]:
    """Return the words that the stand-in was told."""
    return path.read_text(encoding="utf-8").split("\0")[:-1]


@pytest.fixture
def site(commands: Commands, tmp_path: Path) -> Site:
    return Site(commands, tmp_path)


def test_the_epilog_leaves_a_post_mortem_beside_the_output(site: Site) -> None:
    output = site.runs / "train 4711.out"
    output.write_text(FAILED, encoding="utf-8")
    site.record(output)
    site.epilog()
    report = site.runs / "post-mortem-4711.html"
    assert site.logged() == f"-t nccl-triage -- job 4711: job 4711 (FAILED): {report}\n"
    assert "gpu-out-of-memory" in report.read_text(encoding="utf-8")
    assert f"{output}:1: " in report.with_suffix(".txt").read_text(encoding="utf-8")
    assert "1001" in site.became.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_files_are_no_code(site: Site, name: str) -> None:
    record = site.stand_in_triage()
    folder = site.runs / name
    folder.mkdir()
    output = folder / f"{name} out"
    output.write_text(FAILED, encoding="utf-8")
    site.record(output)
    site.epilog(SLURM_JOB_STDOUT=str(output), SLURM_JOB_USER=name, SLURM_JOB_NAME=name)
    site.logged()
    words = told(record)
    assert words[:2] == ["diagnose", str(output)]
    assert words[words.index("--report") + 1] == f"{folder}/post-mortem-4711.html"
    assert not list(site.runs.parent.rglob("pwned"))


def test_a_real_glob_character_in_a_name_is_read(site: Site) -> None:
    output = site.runs / "out [4711]*.log"
    output.write_text(FAILED, encoding="utf-8")
    site.record(output)
    site.epilog()
    site.logged()
    assert "gpu-out-of-memory" in (site.runs / "post-mortem-4711.txt").read_text(encoding="utf-8")


def test_the_epilog_does_not_wait_and_its_work_outlives_it(site: Site) -> None:
    os.mkfifo(site.runs / "gate")
    record = site.stand_in_triage(f'read -r _ <"{site.runs}/gate"')
    (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
    site.record(site.runs / "slurm-4711.out")
    site.epilog()
    assert not record.exists()
    (site.runs / "gate").write_text("go\n", encoding="utf-8")
    site.logged()
    assert record.exists()


def test_the_time_limit_ends_the_work(site: Site) -> None:
    site.stand_in_triage("sleep 600")
    site.configure("TIME_LIMIT=1")
    (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
    site.record(site.runs / "slurm-4711.out")
    site.epilog()
    assert "exit code 124" in site.logged()


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"SLURMD_NODENAME": "n2"}, id="second-node"),
        pytest.param({"SLURM_JOB_UID": "0"}, id="job-of-root"),
        pytest.param({"SLURM_JOB_UID": ""}, id="no-user"),
        pytest.param({"SLURM_JOB_ID": ""}, id="no-job"),
        pytest.param({"SLURM_JOB_ID": "1; touch /tmp/x"}, id="no-number"),
    ],
)
def test_the_epilog_leaves_alone(site: Site, env: dict[str, str]) -> None:
    record = site.stand_in_triage()
    (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
    site.record(site.runs / "slurm-4711.out")
    site.epilog(**env)
    assert not record.exists() and not site.became.exists()


def test_the_controllers_epilog_runs_on_no_node(site: Site) -> None:
    record = site.stand_in_triage()
    (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
    site.record(site.runs / "slurm-4711.out")
    site.epilog(SLURM_SCRIPT_CONTEXT="epilog_slurmctld", SLURMD_NODENAME="head")
    site.logged()
    assert record.exists()


def test_options_reach_the_tool(site: Site) -> None:
    record = site.stand_in_triage()
    site.configure('OPTIONS=(--redact --rules "/etc/my rules")')
    (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
    site.record(site.runs / "slurm-4711.out")
    site.epilog()
    site.logged()
    words = told(record)
    assert words[-3:] == ["--redact", "--rules", "/etc/my rules"]
    assert words[words.index("--verify") + 1] == "never"


class TestTriageJob:
    def run(self, site: Site, *words: str) -> subprocess.CompletedProcess[str]:
        return site.commands.run(site.scripts / "triage-job.sh", *words)

    def test_files_with_the_jobs_number_are_read_too(self, site: Site) -> None:
        record = site.stand_in_triage()
        output = site.runs / "slurm-4711.out"
        ranks = [site.runs / "logs" / "4711", site.runs / "logs" / "4711-0.log", site.runs / "nccl.4711.node-a"]
        others = [site.runs / "slurm-47110.out", site.runs / "logs" / "14711-0.log", site.runs / "notes.txt"]
        old, empty = site.runs / "old-4711.log", site.runs / "empty-4711.log"
        ranks[0].mkdir(parents=True)
        for path in (output, ranks[0] / "rank-4711.log", *ranks[1:], *others, old):
            path.write_text(FAILED, encoding="utf-8")
        (site.runs / "post-mortem-4711.html").write_text("of an earlier run", encoding="utf-8")
        empty.touch()
        os.utime(old, (0, 0))
        site.record(output)
        assert self.run(site, "4711").returncode == 0
        words = told(record)
        assert words[1] == str(output)
        assert sorted(words[2 : words.index("--no-config")]) == sorted(map(str, ranks))

    def test_a_task_of_an_array_has_its_own_files(self, site: Site) -> None:
        record = site.stand_in_triage()
        for task in ("4711_1", "4711_2"):
            (site.runs / f"{task}.out").write_text(FAILED, encoding="utf-8")
            (site.runs / f"{task}-rank0.log").write_text(FAILED, encoding="utf-8")
        site.record(site.runs / "4711_2.out", array=" ArrayJobId=4711 ArrayTaskId=2")
        site.record(site.runs / "4711_1.out", array=" ArrayJobId=4711 ArrayTaskId=1", job="4712")
        assert self.run(site, "4711").returncode == 0
        words = told(record)
        assert words[1:3] == [f"{site.runs}/4711_2.out", f"{site.runs}/4711_2-rank0.log"]
        assert words[words.index("--report") + 1].endswith("/post-mortem-4711_2.html")

    @pytest.mark.parametrize("make", ["nothing", "empty"])
    def test_no_output_is_no_error(self, site: Site, make: str) -> None:
        record = site.stand_in_triage()
        if make == "empty":
            (site.runs / "slurm-4711.out").touch()
        site.record(site.runs / "slurm-4711.out")
        result = self.run(site, "4711")
        assert (result.returncode, result.stderr) == (0, "job 4711: its output is missing or empty\n")
        assert not record.exists()

    def test_a_job_that_completed_costs_nothing(self, site: Site) -> None:
        record = site.stand_in_triage()
        (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
        site.record(site.runs / "slurm-4711.out", state="COMPLETED")
        result = self.run(site, "4711")
        assert (result.returncode, result.stdout + result.stderr) == (0, "")
        assert not record.exists()

    def test_no_folder_to_write_to_is_no_error(self, site: Site) -> None:
        site.record(site.runs / "gone" / "slurm-4711.out")
        shutil.rmtree(site.runs)
        result = self.run(site, "4711")
        assert result.returncode == 0
        assert "no folder for the report" in result.stderr

    @pytest.mark.parametrize(("log", "reported"), [(FAILED, True), (HEALTHY, False)])
    def test_of_a_job_that_slurm_has_forgotten_the_log_decides(self, site: Site, log: str, reported: bool) -> None:
        (site.runs / "slurm-4711.out").write_text(log, encoding="utf-8")
        result = self.run(site, "4711", "--workdir", str(site.runs))
        assert result.returncode == 0, result.stderr
        assert (site.runs / "post-mortem-4711.html").exists() == reported
        assert (site.runs / "post-mortem-4711.txt").exists() == reported

    def test_patterns_that_the_number_fills_are_filled(self, site: Site) -> None:
        record = site.stand_in_triage()
        (site.runs / "50% of 4711.out").write_text(FAILED, encoding="utf-8")
        self.run(site, "4711", "--workdir", str(site.runs), "--stdout", f"{site.runs}/50%% of %j.out")
        assert told(record)[1] == f"{site.runs}/50% of 4711.out"

    def test_the_tools_failure_is_its_own(self, site: Site) -> None:
        site.stand_in_triage("exit 70")
        (site.runs / "slurm-4711.out").write_text(FAILED, encoding="utf-8")
        site.record(site.runs / "slurm-4711.out")
        assert self.run(site, "4711").returncode == 70

    @pytest.mark.parametrize("words", [[], ["--stdout"], ["x"], ["1", "--stdout"], ["1", "--what", "x"]])
    def test_a_wrong_call_shows_the_right_one(self, site: Site, words: list[str]) -> None:
        result = self.run(site, *words)
        assert result.returncode == 2
        assert "triage-job.sh JOBID" in result.stderr


class TestSbatchTriage:
    def submit(self, site: Site, *words: str, then: str = "echo 4711") -> tuple[int, str, list[list[str]]]:
        calls = site.commands.folder / "calls"
        site.commands.add("sbatch", f'printf "%s\\0" "$@" "" >>"{calls}"\necho >>"{calls}"\n{then}')
        result = site.commands.run(
            site.scripts / "sbatch-triage", *words, env={"SBATCH_TRIAGE_OPTIONS": "--partition=cpu"}
        )
        lines = calls.read_text(encoding="utf-8").splitlines()
        return result.returncode, result.stdout, [line.split("\0")[:-2] for line in lines]

    def test_a_second_job_waits_for_the_failure_of_the_first(self, site: Site) -> None:
        output = site.runs / "two words 4711.out"
        site.record(output, state="PENDING")
        code, said, (first, second) = self.submit(site, "--nodes=2", "my job.sh", "--lr 3")
        assert (code, said.splitlines()[0]) == (0, "Submitted batch job 4711")
        # The stand-in for sbatch gives both jobs one number.
        assert said in (EXAMPLES / "slurm.md").read_text(encoding="utf-8").replace("4712", "4711")
        assert first == ["--parsable", "--nodes=2", "my job.sh", "--lr 3"]
        assert "--dependency=afternotok:4711" in second and "--partition=cpu" in second
        script = second.index(str(site.scripts / "triage-job.sh"))
        assert second[script + 1 :] == [
            "4711", "--triage", str(site.commands.folder / "nccl-triage"), "--scripts", str(site.scripts), "--stdout", str(output), "--stderr", str(output),
            "--workdir", str(site.runs),
        ]  # fmt: skip

    def test_the_name_of_the_cluster_is_no_part_of_the_number(self, site: Site) -> None:
        site.record(site.runs / "x.out", state="PENDING")
        assert "--dependency=afternotok:4711" in self.submit(site, "job.sh", then='echo "4711;east"')[2][1]

    def test_what_sbatch_refuses_is_refused(self, site: Site) -> None:
        code, said, calls = self.submit(site, "--nope", then="echo 'sbatch: unrecognized option' >&2; exit 3")
        assert (code, said, len(calls)) == (3, "", 1)

    def test_the_job_counts_even_if_its_triage_is_refused(self, site: Site) -> None:
        site.record(site.runs / "x.out", state="PENDING")
        code, said, _ = self.submit(site, "job.sh", then='[[ "$*" == *afternotok* ]] && exit 1; echo 4711')
        assert (code, said) == (0, "Submitted batch job 4711\n")


#: As ``scontrol show job`` prints a job that failed, with a name that imitates other fields.
ENDED = """JobId=4711 JobName=JobState=FAILED Restarts=0
   UserId=ann(1001) GroupId=ann(1001) MCS_label=N/A
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   Requeue={requeue} Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=1:0
   StartTime={start} EndTime=2026-11-20T12:00:00 Deadline=N/A
   ReqNodeList=(null) ExcNodeList={excluded}
   NodeList=gpu[07-08]
   WorkDir={workdir}
   StdErr={stdout}
   StdOut={stdout}
   Comment={comment}\x20
"""
#: A host at fault, named by the kernel and by NCCL.
BROKEN = """gpu07:123:123 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
gpu07:123:123 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0x99 - Init COMPLETE
[rank0]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered
Nov 20 11:59:00 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=123, name=python, An uncorrectable double bit error (DBE) has been detected on GPU
"""


class TestRequeue:
    """``scontrol`` is stood in for by a script that knows the job and writes down what it is told to do."""

    def site(self, site: Site, comment: str = "nccl-triage-requeue=2", **fields: Any) -> Path:
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 60))
        values = {"state": "FAILED", "requeue": 1, "restarts": 0, "excluded": "(null)", **fields}
        output = site.runs / "slurm-4711.out"
        site.records.write_text(
            ENDED.format(start=start, workdir=site.runs, stdout=output, comment=comment, **values), encoding="utf-8"
        )
        asked = site.commands.folder / "asked"
        asked.touch()
        site.commands.add(
            "scontrol",
            'case "$1 $2" in\n'
            '"show hostnames") [[ $3 == "gpu[07-08]" ]] && printf "gpu07\\ngpu08\\n" || tr , "\\n" <<<"$3" ;;\n'
            f"\"show job\") cat '{site.records}' ;;\n*) printf '%s\\n' \"$*\" >>'{asked}' ;;\nesac",
        )
        return asked

    def decide(self, site: Site, restart: object, most: int = 2) -> tuple[int, str]:
        report = json.dumps({"restart": restart})
        result = site.commands.run(site.scripts / "requeue.py", "4711", str(most), stdin=report)
        assert result.stderr == ""
        return result.returncode, result.stdout.removeprefix("job 4711: ").rstrip()

    def test_a_job_that_a_restart_helps_is_requeued(self, site: Site) -> None:
        asked = self.site(site)
        assert self.decide(site, {"decision": "restart", "exclude": []}) == (0, "requeued")
        assert asked.read_text(encoding="utf-8") == "requeue 4711\n"

    @pytest.mark.parametrize("host", ["gpu07", "gpu07.example.com"])
    def test_nodes_to_blame_are_excluded_while_it_is_held(self, site: Site, host: str) -> None:
        asked = self.site(site, excluded="gpu03")
        said = self.decide(site, {"decision": "exclude_then_restart", "exclude": [host]})
        assert said == (0, "requeued without gpu03, gpu07")
        assert asked.read_text(encoding="utf-8").splitlines() == [
            "requeuehold 4711", "update JobId=4711 ExcNodeList=gpu03,gpu07", "release 4711",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("restart", "fields", "why"),
        [
            (None, {}, "no failure was seen"),
            ({"decision": "fix_first", "why": "It would fail again."}, {}, "fix_first: It would fail again."),
            ({"decision": "undecided", "why": "Not known."}, {}, "undecided: Not known."),
            ({"decision": "restart"}, {"restarts": 2}, "it was restarted before, 2 of 2 times"),
            ({"decision": "restart"}, {"state": "CANCELLED"}, "its state is CANCELLED"),
            ({"decision": "restart"}, {"state": "RUNNING"}, "its state is RUNNING"),
            ({"decision": "restart"}, {"requeue": 0}, "it was submitted with --no-requeue"),
            ({"decision": "exclude_then_restart", "exclude": []}, {}, "no node of the job: nothing to exclude"),
            (
                {"decision": "exclude_then_restart", "exclude": ["gpu07", "gpu[01-99]\n$(reboot)"]}, {},
                "no node of the job: 'gpu[01-99]\\n$(reboot)'",
            ),
            ({"decision": "exclude_then_restart", "exclude": ["host-1"]}, {}, "no node of the job: 'host-1'"),
        ],
    )  # fmt: skip
    def test_what_leaves_a_job_alone(self, site: Site, restart: object, fields: dict[str, Any], why: str) -> None:
        asked = self.site(site, **fields)
        assert self.decide(site, restart) == (1, f"not requeued: {why}")
        assert asked.read_text(encoding="utf-8") == ""

    def test_a_job_whose_nodes_cannot_be_excluded_stays_held(self, site: Site) -> None:
        asked = self.site(site)
        refuse = '[[ $1 == update ]] && { echo "Invalid node name specified" >&2; exit 1; }\n'
        script = (site.commands.folder / "scontrol").read_text(encoding="utf-8").replace("case", refuse + "case", 1)
        site.commands.add("scontrol", script)
        code, said = self.decide(site, {"decision": "exclude_then_restart", "exclude": ["gpu08"]})
        assert code == 1 and "it is held" in said and "Invalid node name specified" in said
        assert asked.read_text(encoding="utf-8").splitlines() == ["requeuehold 4711"]

    @pytest.mark.parametrize("words", [(), ("4711",), ("x", "2"), ("4711", "-1")])
    def test_a_wrong_call_shows_the_right_one(self, site: Site, words: tuple[str, ...]) -> None:
        result = site.commands.run(site.scripts / "requeue.py", *words)
        assert result.returncode == 2 and "requeue.py JOBID MOST" in result.stderr

    def test_a_job_that_asks_for_it_is_requeued_after_its_post_mortem(self, site: Site) -> None:
        asked = self.site(site)
        (site.runs / "slurm-4711.out").write_text(BROKEN, encoding="utf-8")
        calls = site.commands.folder / "calls"
        site.commands.add("sbatch", f"printf '%s\\n' \"$*\" >>'{calls}'\necho 4712")
        told = site.commands.run(site.scripts / "triage-job.sh", "4711", env={"SLURM_JOB_ID": "4712"})
        assert told.returncode == 0, told.stderr
        assert "job 4711: requeued without gpu07\nIts triage is job 4712" in told.stdout
        assert "update JobId=4711 ExcNodeList=gpu07" in asked.read_text(encoding="utf-8")
        assert "--dependency=afternotok:4711" in calls.read_text(encoding="utf-8")
        assert "gpu-hardware-fault" in (site.runs / "post-mortem-4711.txt").read_text(encoding="utf-8")
        assert json.loads((site.runs / "post-mortem-4711.json").read_text(encoding="utf-8"))["restart"]["exclude"]

    @pytest.mark.parametrize(
        "comment", ["", "nccl-triage-requeue=", "nccl-triage-requeue=2x", "x nccl-triage-requeue=2"]
    )
    def test_a_job_that_does_not_ask_is_left_alone(self, site: Site, comment: str) -> None:
        asked = self.site(site, comment)
        (site.runs / "slurm-4711.out").write_text(BROKEN, encoding="utf-8")
        assert site.commands.run(site.scripts / "triage-job.sh", "4711").returncode == 0
        assert asked.read_text(encoding="utf-8") == ""
        assert (site.runs / "post-mortem-4711.txt").exists() and not (site.runs / "post-mortem-4711.json").exists()


class TestBatchScript:
    """``srun`` is stood in for by a script that writes the files of two ranks and ends as it is told."""

    def start(self, site: Site, then: str) -> subprocess.Popen[str]:
        site.commands.add(
            "srun",
            "for word; do [[ $word == --output=* ]] && name=${word#--output=}; done\n"
            f'printf "step 1\\n" >"${{name//%t/0}}"\nprintf "{FAILED.strip()}\\n" >"${{name//%t/1}}"\n{then}',
        )
        return subprocess.Popen(
            [SLURM / "batch.sh", "python", "train.py"], cwd=site.runs, text=True, stdout=subprocess.PIPE,
            env={**site.commands.env, "SLURM_JOB_ID": "4711"},
        )  # fmt: skip

    def test_a_failure_is_explained_and_passed_on(self, site: Site) -> None:
        process = self.start(site, "exit 7")
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 7
        assert "gpu-out-of-memory" in said and "rank 1" in said
        assert (site.runs / "logs" / "4711" / "post-mortem.html").exists()

    def test_a_success_is_silent(self, site: Site) -> None:
        process = self.start(site, "exit 0")
        assert process.communicate(timeout=PATIENCE)[0] == ""
        assert process.returncode == 0
        assert not (site.runs / "logs" / "4711" / "post-mortem.html").exists()

    def test_the_warning_before_the_time_limit_ends_the_step_and_explains(self, site: Site) -> None:
        os.mkfifo(site.runs / "ready")
        process = self.start(site, f'echo >"{site.runs}/ready"\nexec sleep 600')
        (site.runs / "ready").read_text(encoding="utf-8")
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 143
        assert "gpu-out-of-memory" in said
