"""Tell logs from other files by their names and first bytes, and filtered logs by their first lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from nccl_triage.ingest import compression
from nccl_triage.ingest.encodings import wide_encoding
from nccl_triage.lazy_regex import lazily
from nccl_triage.tool_reports import SAMPLE

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
#: How an archive begins whose members are read.
ZIP = b"PK\x03\x04"
_ARCHIVE = lazily(rb"(?s)PK\x03\x04|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x04\x22\x4d\x18|\x1f\x9d|.{257}ustar")
_MAGIC = lazily(rb"\x7fELF|\x89PNG\r|\xff\xd8\xff|%PDF-|SQLite format 3\0|\x93NUMPY|PAR1|\x80[\x02-\x05][}c\x95(]")

#: A hole: a host crashed before the blocks of a file were written, or a log was truncated while its writer kept the
#: position. Binary files hold as many NULs in a row, too, and show what they are by the rest.
_HOLE = lazily(rb"\0{64,}")
#: Bytes beside holes that suffice to tell what a file is, and bytes in which they are looked for.
_TELLING, _FAR = 1024, 64 << 20
_PIECE = 1 << 18
#: Why a file is left out.
BINARY = "binary, not a log"
EMPTY = "empty"

#: Names of the fields that a JSON log record has: one of each list.
_JSON_MESSAGE = lazily(rb'"(?:msg|message|log|MESSAGE|text|event|exc_info)"\s*:')
_JSON_RECORD = lazily(
    rb'"(?:ts|time|timestamp|@timestamp|asctime|level|levelname|severity|stream|__REALTIME_TIMESTAMP)"\s*:'
)


def looks_binary(sample: bytes) -> bool:
    """Tell whether bytes are not text in any encoding of logs; holes of NULs are ignored."""
    if _MAGIC.match(sample) or _MAGIC.match(sample := without_holes(sample)):
        return True
    if not sample or wide_encoding(sample):
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls > _CONTROL_SHARE * len(sample)


def looks_like_json_log(sample: bytes) -> bool:
    """Tell log records, one JSON object a line, from configurations, indexes and data sets."""
    first = sample.split(b"\n", 1)[0]
    return first.startswith(b"{") and bool(_JSON_MESSAGE.search(first) and _JSON_RECORD.search(first))


def without_holes(sample: bytes) -> bytes:
    """Return the beginning of a file without its holes; of UTF-16, half of which may be NULs, all of it."""
    return sample if b"\0" not in sample or wide_encoding(sample) else _HOLE.sub(b"", sample)


def head(path: Path) -> tuple[bytes, bytes, list[str]]:
    """Return the first bytes of a regular file, unpacked, then those beside holes, and what went wrong while unpacking.

    Raises OSError when the file cannot be read.
    """
    problems: list[str] = []
    with path.open("rb", buffering=0) as raw, compression.open_stream(raw, problems) as stream:
        sample = compression.read_up_to(stream, SAMPLE)
        filled = without_holes(sample)
        if len(filled) < min(len(sample), _TELLING):
            # What was written behind the hole tells more than a line in front of it.
            filled += _beside_holes(stream, _TELLING - len(filled))
            if len(filled) < _TELLING and stream is raw:
                raw.seek(max(raw.tell(), path.stat().st_size - SAMPLE))
                filled += _beside_holes(stream, _TELLING - len(filled))
    return sample, filled, problems


def _beside_holes(stream: BinaryIO, wanted: int) -> bytes:
    """Return so many of the next bytes, or all of a piece that has more, that are no part of a hole."""
    found, read = b"", 0
    while len(found) < wanted and read < _FAR and (piece := compression.read_up_to(stream, _PIECE)):
        found += _HOLE.sub(b"", piece.strip(b"\0"))[: max(SAMPLE, wanted)]
        read += len(piece)
    return found


def classify(path: Path) -> tuple[Kind, str, bytes]:
    """Return what kind of file this is, why (for those that are no text) and its first bytes.

    Raises OSError when the file cannot be read.
    """
    return kind_of(*head(path))


def kind_of(sample: bytes, filled: bytes, problems: Sequence[str]) -> tuple[Kind, str, bytes]:
    """Return what ``classify`` does, by what ``head`` returns."""
    if not sample:
        return ("unreadable", problems[0], sample) if problems else ("empty", EMPTY, sample)
    if not filled.strip(b"\0"):
        return "binary", "nothing but NUL bytes", sample
    if _ARCHIVE.match(sample) or _ARCHIVE.match(filled):
        return "archive", "an archive: unpack it first", sample
    if looks_binary(sample if len(filled) == len(sample) else filled):
        return "binary", BINARY, sample
    return "text", "", filled


#: What people filter logs for; a word that all lines of an ordinary log share (a host, a rank, "INFO") is no
#: sign.
FILTER_WORDS = (
    "nccl", "error", "warn", "fail", "exception", "timeout", "timed out", "watchdog",
    "cuda", "xid", "kill", "abort", "traceback", "socket", "connect", "gloo", "processgroup", "oom",
)  # fmt: skip
#: Fewer lines share a word by chance.
MIN_FILTERED = 3
# A traceback frame, its source line, a C++ frame: lines that belong to the one above and never hold its word.
_CONTINUATION = lazily(
    r"^(?:\[rank\d+\]: ?|\([^)\n]{0,200}?pid=\d{1,18}[^)\n]{0,200}\) ?)?(?:\s{2,}\S|frame #\d+|Traceback \(most recent)"
)


def looks_filtered(sample_lines: Sequence[str]) -> bool:
    """Tell whether every line holds the same searched-for word and none continues another.

    ``grep NCCL train.log | nccl-triage`` throws away what decides most cases: tracebacks, the first error of
    another program, the lines of the rank that failed. The diagnosis is still made, but the user should be
    told what kind of evidence cannot be there. A file that one program wrote (``NCCL_DEBUG_FILE``) has its
    word in every line by nature: do not ask for sources whose layout says so.
    """
    lines = [line for line in sample_lines if line != "--"]
    words: Sequence[str] = FILTER_WORDS
    for line in lines:
        lowered = line.lower()
        words = [word for word in words if word in lowered]
        if not words:  # mostly after the first line
            return False
    return len(lines) >= MIN_FILTERED and not any(map(_CONTINUATION.match, lines))
