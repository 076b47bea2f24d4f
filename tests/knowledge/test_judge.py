"""A plain word on unusual values, and silence about usual ones."""

from __future__ import annotations

import pytest

from nccl_triage.knowledge.entries import Grammar, Remark
from nccl_triage.knowledge.judge import cleaned, describe_values, fits, judge_variable, same


def kinds(name: str, value: str, environment: dict[str, str] | None = None, **known: str) -> list[str]:
    return [remark.kind for remark in judge_variable(name, value, known, environment)]


def only(name: str, value: str, **known: str) -> Remark:
    (remark,) = judge_variable(name, value, known)
    return remark


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_3"),
        ("NCCL_IB_TIMEOUT", "22"),
        ("NCCL_NVB_DISABLE", "1"),  # read by NCCL, without an entry here
        ("NCCL_VERSION", "2.21.5"),  # set by container images
        ("MASTER_ADDR", "10.0.0.1"),
        ("HF_HOME", "/data"),
        ("PATH", "/usr/bin"),
        ("VLLM_SOMETHING_QUITE_NEW", "1"),
        ("RAY_some_new_option_ms", "1"),
    ],
)
def test_nothing_is_said_of_what_is_usual_or_not_known_well_enough(name: str, value: str) -> None:
    assert judge_variable(name, value, {}) == []


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    remark = only("NCCL_IB_TIMOUT", "22")
    assert (remark.level, remark.kind) == ("warn", "unknown")
    assert "NCCL_IB_TIMEOUT" in remark.says["en"]
    assert "NCCL_IB_TIMEOUT" in remark.says["zh"]


def test_the_nearest_name_is_one_that_the_program_reads() -> None:
    assert "NCCL_MAX_NRINGS" in only("NCCL_MAX_RING", "4").says["en"]


def test_an_unknown_name_without_a_neighbour_names_none() -> None:
    assert "nearest" not in only("NCCL_QQQQQQ", "1").says["en"]


def test_a_slip_of_the_pen_is_a_note_where_not_all_names_are_known() -> None:
    remark = only("TORCH_NCCL_BLOCKING_WAITS", "1")
    assert remark.level == "note"
    assert "TORCH_NCCL_BLOCKING_WAIT." in remark.says["en"]


def test_variables_of_plug_ins_are_not_called_unknown_to_everybody() -> None:
    remark = only("NCCL_FASTRAK_IFNAME", "eth1")
    assert remark.level == "note"
    assert "plugin" in remark.says["en"]


@pytest.mark.parametrize(
    ("name", "value", "known", "found"),
    [
        ("NCCL_RAS_ENABLE", "1", {"nccl": "2.21.5"}, ["version"]),
        ("NCCL_RAS_ENABLE", "1", {"nccl": "2.27.5+cuda12.9"}, ["default"]),
        ("NCCL_RAS_ENABLE", "1", {"torch": "2.4.0"}, ["default"]),
        ("VLLM_USE_V1", "1", {"vllm": "0.12.0"}, ["version"]),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "900", {"vllm": "0.12.0"}, ["version"]),
        # Between the versions that were read nobody knows.
        ("VLLM_ENGINE_READY_TIMEOUT_S", "900", {"vllm": "0.20.0"}, []),
        ("VLLM_RPC_TIMEOUT", "900", {"vllm": "0.20.0"}, []),
        ("VLLM_RPC_TIMEOUT", "900", {"vllm": "0.33.1"}, ["version"]),
        ("TORCH_GLOO_LAZY_INIT", "1", {"torch": "2.6.0"}, ["version"]),
    ],
)
def test_versions(name: str, value: str, known: dict[str, str], found: list[str]) -> None:
    assert kinds(name, value, **known) == found


@pytest.mark.parametrize(
    ("version", "value", "found"),
    [
        ("2.10.3", "14", ["default"]),
        ("2.18.3", "18", ["default"]),
        ("2.18.3", "20", []),
        ("2.23.4", "20", ["default"]),
        ("2.23.4", "18", []),
    ],
)
def test_a_default_is_that_of_the_version(version: str, value: str, found: list[str]) -> None:
    assert kinds("NCCL_IB_TIMEOUT", value, nccl=version) == found


def test_a_default_that_changed_is_not_told_without_a_version() -> None:
    assert kinds("NCCL_IB_TIMEOUT", "20") == []


def test_a_switch_for_diagnosis_says_that_it_must_not_stay() -> None:
    remark = only("NCCL_P2P_DISABLE", "1")
    assert (remark.level, remark.kind) == ("note", "debugging")
    assert "Do not leave it in scripts" in remark.says["en"]
    assert "脚本" in remark.says["zh"]


def test_a_switch_for_diagnosis_that_is_off_is_merely_the_default() -> None:
    assert kinds("NCCL_P2P_DISABLE", "0") == ["default"]


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("NCCL_IB_HCA", "mlx5", "matches every device"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1", "mlx5_10"),
        ("NCCL_BUFFSIZE", "2097152", "smaller than the default"),
        ("NCCL_NVLS_ENABLE", "0", "NVLS is off"),
        ("GLOO_SOCKET_IFNAME", "^lo,docker", "exact names"),
        ("MASTER_ADDR", "http://10.0.0.1", "without a scheme"),
        ("DEEPSPEED_TIMEOUT", "3600", "minutes"),
        ("CUDA_VISIBLE_DEVICES", "0,1,0", "twice"),
        ("NCCL_PROTO", "LL128", "corrupt"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "forever"),
        ("RAY_memory_monitor_refresh_ms", "0", "memory monitor is off"),
    ],
)
def test_known_traps(name: str, value: str, word: str) -> None:
    remark = only(name, value)
    assert remark.kind == "trap"
    assert word in remark.says["en"]


def test_a_trap_of_later_versions_needs_the_version() -> None:
    def warned(*known: tuple[str, str]) -> bool:
        return any(remark.level == "warn" for remark in judge_variable("NCCL_CUMEM_ENABLE", "0", dict(known)))

    assert warned(("nccl", "2.27.3"))
    assert not warned(("nccl", "2.21.5"))
    assert not warned()


def test_gloo_is_mentioned_only_where_its_variable_is_missing() -> None:
    assert kinds("NCCL_SOCKET_IFNAME", "=bond0", {"NCCL_SOCKET_IFNAME": "=bond0"}) == ["trap"]
    assert kinds("NCCL_SOCKET_IFNAME", "=bond0", {"GLOO_SOCKET_IFNAME": "bond0"}) == []


def test_words_where_nccl_reads_numbers() -> None:
    remark = only("NCCL_IB_DISABLE", "true")
    assert (remark.level, remark.kind) == ("warn", "outside")
    assert "not understood" in remark.says["en"]


@pytest.mark.parametrize("value", ["$NCCL_IFACE", "${X:-eth0}", "<interface>", "...", ""])
def test_place_holders_are_no_values(value: str) -> None:
    assert judge_variable("NCCL_IB_DISABLE", value, {}) == []


@pytest.mark.parametrize(("shown", "meant"), [("INFO,", "INFO"), ("'1'", "1"), (" 22. ", "22"), ('"eth0")', 'eth0"')])
def test_the_punctuation_of_a_log_is_no_part_of_a_value(shown: str, meant: str) -> None:
    assert cleaned(shown) == meant


def test_a_hostile_value_is_cut() -> None:
    remark = only("NCCL_IB_TIMEOUT", "x" * 100_000)
    assert len(remark.says["en"]) < 400
    assert len(remark.says["zh"]) < 400


@pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "-" * 5000, "1e999999", "{0.__class__}", "%s{name}"])
def test_no_value_brings_it_down(value: str) -> None:
    for name in ("NCCL_IB_TIMEOUT", "NCCL_IB_HCA", "NCCL_ALGO", "PYTORCH_CUDA_ALLOC_CONF", "MASTER_PORT", "NCCL_NOPE"):
        judge_variable(name, value, {"nccl": "2.27.5"})


def test_every_remark_speaks_both_languages() -> None:
    for name, value in (("NCCL_NOPE", "1"), ("NCCL_DEBUG", "LOUD"), ("NCCL_MIN_NRINGS", "4"), ("NCCL_MAX_RINGS", "4")):
        for remark in judge_variable(name, value, {}):
            assert remark.says["en"].isascii()
            assert any("\u4e00" <= char <= "\u9fff" for char in remark.says["zh"])


PORT = Grammar("integer", least=1, most=65535, also=("auto",))


@pytest.mark.parametrize(
    ("grammar", "value", "expected"),
    [
        (Grammar("switch"), "1", True),
        (Grammar("switch"), "0x1", True),
        (Grammar("switch"), "true", False),
        (Grammar("switch"), "2", False),
        (Grammar("truth"), "True", True),
        (Grammar("truth"), "off", True),
        (Grammar("truth"), "2", False),
        (PORT, "29500", True),
        (PORT, "AUTO", True),
        (PORT, "0", False),
        (PORT, "65536", False),
        (PORT, "1.5", False),
        (PORT, "", False),
        (PORT, "nan", False),
        (PORT, "inf", False),
        (Grammar("number", least=0, most=1), "0.9", True),
        (Grammar("number", least=0, most=1), "90", False),
        (Grammar("integer"), "4194304", True),
        (Grammar("integer"), "4M", False),
        (Grammar("one-of", of=("INFO", "WARN")), "info", True),
        (Grammar("one-of", of=("INFO", "WARN")), "DEBUG", False),
        (Grammar("list-of", of=("INIT", "NET")), "INIT,NET", True),
        (Grammar("list-of", of=("INIT", "NET")), "^INIT", True),
        (Grammar("list-of", of=("INIT", "NET")), "INIT,SOCKET", False),
        (Grammar("list-of", of=("INIT", "NET")), ",", False),
        (Grammar("interfaces"), "^=eth0,ens1f0np0", True),
        (Grammar("interfaces"), "eth0 eth1", False),
        (Grammar("devices"), "=mlx5_0:1,mlx5_3:1", True),
        (Grammar("devices"), "mlx5_0;mlx5_1", False),
        (Grammar("text"), "anything goes", True),
        (Grammar("path"), "", False),
    ],
)
def test_values(grammar: Grammar, value: str, expected: bool) -> None:
    assert fits(grammar, value) is expected


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        ("integer", "4194304", "0x400000", True),
        ("integer", "1", "1.0", True),
        ("integer", "1", "2", False),
        ("truth", "1", "true", True),
        ("truth", "1", "no", False),
        ("truth", "1", "perhaps", False),
        ("text", "Ring", "ring", True),
        ("text", "Ring", "Tree", False),
    ],
)
def test_values_that_mean_the_same(kind: str, one: str, other: str, expected: bool) -> None:
    assert same(Grammar(kind), one, other) is expected


@pytest.mark.parametrize(
    ("grammar", "english", "chinese"),
    [
        (PORT, "a whole number from 1 to 65535, or auto", "整数，1 到 65535，或 auto"),
        (Grammar("integer", least=1, unit="seconds"), "a whole number of seconds, 1 or more", "整数（秒），不小于 1"),
        (Grammar("number", most=0.5), "a number, at most 0.5", "数字，不大于 0.5"),
        (Grammar("one-of", of=("a", "b")), "one of a, b", "以下之一：a、b"),
    ],
)
def test_grammars_in_words(grammar: Grammar, english: str, chinese: str) -> None:
    assert describe_values(grammar) == {"en": english, "zh": chinese}
