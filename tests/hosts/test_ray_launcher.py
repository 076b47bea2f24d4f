"""Agents on a real Ray cluster: several raylets on this machine, each of which Ray takes for a node."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.errors import UsageError
from nccl_triage.hosts import ray_actors
from nccl_triage.hosts.probes.gpu import Gpu
from nccl_triage.hosts.ray_launcher import RayLauncher
from nccl_triage.hosts.ray_nodes import by_value
from nccl_triage.verify import api, runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RankTrace, RunResult, Slot
from nccl_triage.verify.means import HostMeans, Means
from nccl_triage.verify.node_choice import NodeChoice
from tests.raylets import MARKS, NODE, alive, wait_for
from tests.verify.smi_host import Row, SmiHost

pytestmark = [*MARKS, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]


@pytest.fixture
def launcher(cluster: Any, tmp_path: Path) -> Callable[..., RayLauncher]:
    def make(timeout: float = 30.0, **choice: Any) -> RayLauncher:
        return RayLauncher(
            cluster.address,
            worker(),
            NodeChoice(**choice).among,
            tmp_path / "logs",
            choice.get("ranks_per_host"),
            timeout,
        )

    return make


@pytest.fixture(scope="class")
def session(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Both nodes with torch loaded, for tests that leave them as they were."""
    folder = tmp_path_factory.mktemp("session")
    with Cluster(RayLauncher(cluster.address, worker(), NodeChoice().among, folder)) as agents:
        agents.greet(20.0)
        assert agents.preload(60.0) == {}
        yield agents


def collective(agents: Cluster, **changes: Any) -> CollectiveRun:
    slots = tuple(Slot(place, place) for place in range(len(agents.places)))
    return CollectiveRun(
        "run", slots, CollectiveMessage("ALLREDUCE", 1 << 12), store_address=agents.places[0].address, **changes
    )


def relays(agents: RayLauncher) -> list[int]:
    """The agents on the nodes."""
    import ray

    pids: list[int] = ray.get([link.relay.pid.remote() for link in agents.links.values()])
    return pids


def family(agent: int) -> set[int]:
    """All processes that run the program of an agent, which they know under the agent's name."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"/proc/{agent}/fd/".encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


def state(actors: list[Any]) -> set[str]:
    """What Ray says of actors."""
    import ray

    told = ray._private.state.actors()
    return {told[actor._actor_id.hex()]["State"] for actor in actors}


def pid_of(trace: RankTrace) -> int:
    return int(trace.details["start"]["pid"])


class TestOneSession:
    """Tests that leave the agents as they were; torch is imported once."""

    def test_a_healthy_collective_passes_over_two_nodes(self, session: Cluster, tmp_path: Path) -> None:
        first, second = session.places
        assert second.name == f"{first.name}#2"
        assert session.facts[0]["host"] == first.name
        result = runner.execute(session, collective(session), tmp_path, Deadlines())
        assert (result.outcome, result.stage, result.reason) == ("passed", "end", "")
        assert [trace.details["done"]["wrong"] for trace in result.ranks.values()] == [0, 0]
        assert len({pid_of(trace) for trace in result.ranks.values()}) == 2
        assert (tmp_path / "rank-1.log").exists()

    @pytest.mark.parametrize(("fault", "state"), [("absent", "S"), ("sigstop", "T")])
    def test_a_rank_that_hangs_is_declared_at_its_deadline_and_removed(
        self, session: Cluster, tmp_path: Path, fault: str, state: str
    ) -> None:
        run = collective(session, faults={"1": {"name": fault}})
        result = runner.execute(session, run, tmp_path, Deadlines(entered=2.0, first=20.0))
        assert (result.outcome, result.stage) == ("hung", "entered")
        assert result.reason == "deadline before 'entered': 2 s"
        assert result.ranks[1].state == state
        assert result.seconds < 8.0
        assert result.cleaned_s < 2.0
        assert result.ranks[1].exit_code == -signal.SIGKILL
        for trace in result.ranks.values():
            # Rank 0 may see its peer's end before its own and leave with an error.
            assert trace.killed and trace.exit_code in (-signal.SIGKILL, 3)
            assert not alive(pid_of(trace))
        # The agents serve on.
        assert runner.execute(session, collective(session), tmp_path / "again", Deadlines()).passed


@pytest.fixture
def joined(cluster: Any) -> Iterator[Any]:
    """Ray as a driver has it that joined the cluster for its own purposes."""
    import ray

    ray.init(address=cluster.address, logging_level="CRITICAL", log_to_driver=False)
    yield ray
    ray.shutdown()


def test_nothing_is_left_after_close(joined: Any, launcher: Callable[..., RayLauncher], tmp_path: Path) -> None:
    ours = launcher()
    with Cluster(ours) as agents:
        assert agents.reserve({0: 1, 1: 2}) in ({0: "0", 1: "0,1"}, {0: "1", 1: "0,1"})
        pids, actors = relays(ours), [link.relay for link in ours.links.values()] + list(ours._holders.values())
        assert (len(actors), state(actors)) == (4, {"ALIVE"})
        for place in (0, 1):
            spec = {"faults": {}, "backend": "gloo"}
            agents.send(place, do="run", run="r", ranks=[place], spec=spec, folder=str(tmp_path / "r"), method="spawn")
        # The agent and the rank, which is importing torch now.
        wait_for(lambda: [len(family(pid)) for pid in pids] == [2, 2], "two ranks run")
    assert not any(map(family, pids))
    wait_for(lambda: state(actors) == {"DEAD"}, "Ray knows")
    wait_for(lambda: joined.available_resources().get("GPU") == 4, "the GPUs are given back")
    assert list(Path(os.environ["TMPDIR"]).iterdir()) == []
    # Whoever had joined before stays so.
    assert joined.is_initialized()


def kill_node_when_warm(cluster: Any, node: Any) -> Callable[[CollectiveRun, dict[int, RankTrace]], None]:
    killed: list[Any] = []

    def watch(run: CollectiveRun, traces: dict[int, RankTrace]) -> None:
        if not killed and all("warm" in trace.times for trace in traces.values()):
            killed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    return watch


def lost(result: RunResult, agents: Cluster) -> dict[str, str]:
    """The hosts that a result calls lost, and why."""
    return {
        agents.name(trace.slot.place): trace.error["text"]
        for trace in result.ranks.values()
        if trace.error is not None and trace.error["type"] == "AgentLost"
    }


def test_a_node_that_dies_in_a_run_is_a_result_that_names_it(
    cluster: Any, launcher: Callable[..., RayLauncher], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import ray

    node = cluster.add_node(**NODE)
    ours = launcher()
    try:
        with Cluster(ours) as agents:
            pids = relays(ours)
            victim = next(place for place, pid in enumerate(pids) if parent(parent(pid)) == raylet(node))
            assert agents.preload(60.0) == {}
            run = collective(agents, iterations=1_000_000)
            watch = kill_node_when_warm(cluster, node)
            result = runner.execute(agents, run, tmp_path, Deadlines(grace=8.0), watch=watch)
            assert result.outcome in ("error", "crashed")
            assert list(lost(result, agents)) == [agents.name(victim)]
            assert list(agents.gone) == [victim]
            wait_for(lambda: sum(told["Alive"] for told in ray.nodes()) == 2, "Ray notices")
    finally:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)
    wait_for(lambda: not any(map(family, pids)), "all processes are gone")
    # Ray prints the death of a raylet to the driver's standard output unless it is kept from it.
    assert capfd.readouterr() == ("", "")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def test_a_killed_driver_leaves_nothing(cluster: Any, tmp_path: Path) -> None:
    program = f"""
import sys, time, ray
from pathlib import Path
from nccl_triage.hosts.ray_launcher import RayLauncher
from nccl_triage.verify.cluster import worker
launcher = RayLauncher({cluster.address!r}, worker(), folder=Path({str(tmp_path)!r}))
print(*ray.get([launcher.open(place).relay.pid.remote() for place in range(2)]), flush=True)
time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as driver:
        assert driver.stdout is not None
        pids = [int(word) for word in driver.stdout.readline().split()]
        try:
            wait_for(lambda: [len(family(pid)) for pid in pids] == [1, 1], "the agents run")
        finally:
            driver.kill()
    wait_for(lambda: not any(map(family, pids)), "the actors and agents of the dead driver end")


def test_gpus_are_reserved_and_seen_by_the_agents(launcher: Callable[..., RayLauncher]) -> None:
    import ray

    ours = launcher(ranks_per_host=2)
    with Cluster(ours) as agents:
        assert [place.slots for place in agents.places] == [2, 2]
        for agent in relays(ours):
            # Ray hides all GPUs from an actor that asks for none; its agent is to tell which are idle.
            told = Path(f"/proc/{agent}/environ").read_bytes().split(b"\0")
            assert not [variable for variable in told if variable.startswith(b"CUDA_VISIBLE_DEVICES")]
        assert agents.reserve({0: 2, 1: 1}) in ({0: "0,1", 1: "0"}, {0: "0,1", 1: "1"})
        # Others get what is left, and are refused where nothing is.
        with Cluster(launcher()) as others:
            assert list(others.reserve({1: 2})) == [1]
            with pytest.raises(UsageError) as caught:
                others.reserve({0: 1})
            assert caught.value.message == f"the Ray cluster did not reserve the GPUs of {others.name(0)}"
            assert caught.value.cause == "0 of 2 GPUs are free"
            # Where they are not needed, the reason is kept and Gloo can stand in.
            seen = HostMeans((Gpu(0),), 1)
            left = api.reserved(others, Means(tuple(others.places), (seen, seen)), [0], needed=False)
            assert left.gpus == 0 and "0 of 2 GPUs are free" in left.no_gpu["en"]
        # The other launcher found Ray joined and left it so.
        agents.greet(10.0)
    assert not ray.is_initialized()


def test_a_busy_gpu_that_ray_believes_free_is_left_alone(
    cluster: Any, launcher: Callable[..., RayLauncher], tmp_path: Path
) -> None:
    """A node of its own: its raylet has a nvidia-smi on PATH, and the torch of a GPU host."""
    host = SmiHost(tmp_path / "host", "gpu-a", [Row(0, "GPU-a0", apps=[4242]), Row(1, "GPU-a1")])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PATH", f"{host.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        environment.setenv("PYTHONPATH", str(host.folder / "modules"))
        node = cluster.add_node(**NODE, resources={"with-driver": 1})
    try:
        with Cluster(launcher()) as agents:
            means = api.ask_hosts(agents, api.Settings(launcher="ray"))
            place = next(index for index, found in enumerate(means.hosts) if found.present)
            assert [gpu.uuid for gpu in means.hosts[place].gpus] == ["GPU-a1"]
            kept = api.reserved(agents, means, [place])
            assert [gpu.uuid for gpu in kept.hosts[place].gpus] == ["GPU-a1"]
    finally:
        cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"])
def test_an_address_where_no_cluster_is_costs_seconds_only(address: str) -> None:
    started = time.monotonic()
    with pytest.raises(UsageError) as caught:
        RayLauncher(address, worker())
    assert caught.value.message == f"cannot join the Ray cluster at {address!r}"
    assert caught.value.cause
    assert time.monotonic() - started < 8.0


def test_the_actor_needs_no_nccl_triage_on_its_node() -> None:
    import ray

    with by_value(ray, ray_actors.Relay):
        data = ray.cloudpickle.dumps(ray_actors.Relay)
    check = (
        "import pickle, sys; sys.modules['nccl_triage'] = None; print(pickle.load(sys.stdin.buffer).receive.__doc__)"
    )
    done = subprocess.run([sys.executable, "-c", check], input=data, capture_output=True, timeout=60)
    assert b"Return the program's lines" in done.stdout, done.stderr.decode()
    # The test can fail: by reference it would.
    with pytest.raises(ModuleNotFoundError):
        unpickle_without_us(ray.cloudpickle.dumps(ray_actors.Relay))


def unpickle_without_us(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as modules:
        modules.setitem(sys.modules, "nccl_triage.hosts.ray_actors", None)
        pickle.loads(data)
