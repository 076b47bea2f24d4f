"""Tell logs from other files by their names and first bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from nccl_triage.ingest import compression
from nccl_triage.ingest.encodings import wide_encoding
from nccl_triage.patterns import lazily
from nccl_triage.renderings.form import SAMPLE

Kind = Literal["text", "binary", "archive", "empty", "unreadable"]

#: Endings of files in a folder that are no logs: weights, data, profiles, packages, media, code, settings.
NO_LOG = frozenset({
    ".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".pkl", ".pickle", ".npy", ".npz", ".onnx", ".gguf",
    ".h5", ".hdf5", ".msgpack", ".distcp", ".model", ".tiktoken",
    ".parquet", ".arrow", ".feather", ".tfrecord", ".tfevents", ".mmap", ".idx", ".lmdb", ".mdb", ".db",
    ".sqlite", ".wandb", ".csv", ".tsv",
    ".nsys-rep", ".qdrep", ".ncu-rep", ".core", ".dmp",
    ".so", ".a", ".dll", ".exe", ".pyc", ".whl", ".egg", ".jar", ".deb", ".rpm",
    ".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".iso", ".img",
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".ico", ".pdf", ".mp3", ".mp4", ".wav", ".avi", ".mov",
    ".webm", ".ttf", ".woff", ".woff2",
    ".py", ".pyi", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs", ".go", ".js", ".ts",
    ".css", ".html", ".htm", ".xml", ".md", ".rst", ".tex",
    ".yaml", ".yml", ".toml", ".cfg", ".ini", ".conf", ".sh", ".sbatch", ".slurm", ".lock", ".pid", ".pem",
    ".key", ".crt",
})  # fmt: skip
#: Endings of files that are logs when their records look like it.
JSON = frozenset({".json", ".jsonl", ".ndjson"})

#: Control bytes that no text holds; random (compressed) bytes have a tenth of them, logs next to none.
_CONTROLS = bytes(b for b in range(32) if b not in b"\t\n\r\x0b\x0c\x08\x07\x1b") + b"\x7f"
_CONTROL_SHARE = 0.04
_ARCHIVE = lazily(rb"(?s)PK\x03\x04|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x04\x22\x4d\x18|\x1f\x9d|.{257}ustar")
_MAGIC = lazily(rb"\x7fELF|\x89PNG\r|\xff\xd8\xff|%PDF-|SQLite format 3\0|\x93NUMPY|PAR1|\x80[\x02-\x05][}c\x95(]")

#: A log truncated while its writer kept the position: a hole at its beginning, or behind the lines of another writer.
_HOLE = lazily(rb"(^|\n)\0{64,}")
#: Bytes of text in front of a hole that suffice to tell what a file is.
_TELLING = 1024

#: Names of the fields that a JSON log record has: one of each list.
_JSON_MESSAGE = lazily(rb'"(?:msg|message|log|MESSAGE|text|event|exc_info)"\s*:')
_JSON_RECORD = lazily(
    rb'"(?:ts|time|timestamp|@timestamp|asctime|level|levelname|severity|stream|__REALTIME_TIMESTAMP)"\s*:'
)


def looks_binary(sample: bytes) -> bool:
    """Tell whether bytes are no text in any encoding that logs have."""
    if _MAGIC.match(sample):
        return True
    if not sample or wide_encoding(sample):
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls > _CONTROL_SHARE * len(sample)


def looks_like_json_log(sample: bytes) -> bool:
    """Tell log records, one JSON object a line, from configurations, indexes and data sets."""
    first = sample.split(b"\n", 1)[0]
    return first.startswith(b"{") and bool(_JSON_MESSAGE.search(first) and _JSON_RECORD.search(first))


def head(path: Path) -> tuple[bytes, list[str]]:
    """Return the first bytes of a regular file, unpacked, and what went wrong while unpacking.

    Raises OSError when the file cannot be read.
    """
    problems: list[str] = []
    with compression.open_stream(path.open("rb", buffering=0), problems) as stream:
        sample = compression.read_up_to(stream, SAMPLE)
    filled = _HOLE.sub(b"\\1", sample)
    if len(filled) < len(sample) and len(filled) < _TELLING:
        # What was written behind the hole tells more than a line in front of it.
        with path.open("rb", buffering=0) as raw:
            raw.seek(max(0, path.stat().st_size - SAMPLE))
            filled += _HOLE.sub(b"\\1", compression.read_up_to(raw, SAMPLE))
    return filled or sample, problems


def classify(path: Path) -> tuple[Kind, str, bytes]:
    """Return what kind of file this is, why (for those that are no text) and its first bytes.

    Raises OSError when the file cannot be read.
    """
    sample, problems = head(path)
    if not sample:
        return ("unreadable", problems[0], sample) if problems else ("empty", "empty", sample)
    if _ARCHIVE.match(sample):
        return "archive", "an archive: unpack it first", sample
    if looks_binary(sample):
        return "binary", "binary, not a log", sample
    return "text", "", sample
