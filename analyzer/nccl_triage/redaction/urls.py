"""Pseudonyms of URLs: the scheme, the port and public documentation stay."""

from __future__ import annotations

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction.paths import Paths
from nccl_triage.redaction.people import People
from nccl_triage.redaction.vocabulary import vocabulary

_URL = lazily(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/?#@\s:]*)(?P<password>:[^/?#@\s]*)?@)?(?P<host>\[[^\]]*\]|[^/?#:\s]*)(?P<port>:\d*)?"
    r"(?P<path>/[^?#\s]*)?(?P<rest>[?#]\S*)?"
)
#: Schemes whose host is the name of a bucket.
_BUCKETS = frozenset(
    {
        *("s3", "s3a", "s3n", "gs", "gcs", "oss", "obs", "cos", "cosn", "tos", "bos", "abfs", "abfss", "wasb", "wasbs"),
        *("az", "r2", "minio", "swift", "ceph", "jfs", "juicefs"),
    }
)
#: Stands in place of a query or a fragment.
_CUT = "..."


class Urls:
    """Makes pseudonyms of URLs with those of hosts, users and paths."""

    def __init__(self, paths: Paths, people: People) -> None:
        self._paths, self._people = paths, people

    def of(self, url: str) -> str:
        """Return a URL with what names somebody replaced."""
        match = _URL.fullmatch(url)
        if match is None:
            return self._people.known.replace(url)
        people = self._people
        host, path = match["host"], match["path"] or ""
        in_bucket = match["scheme"].lower() in _BUCKETS
        if vocabulary().public(host) and not self._is_content(host, path):
            return people.known.replace(url)
        named = people.bucket if in_bucket else people.user
        user = "" if match["user"] is None else f"{named(match['user'])}{match['password'] or ''}@"
        shown = people.bucket(host) if in_bucket and not match["user"] else people.host(host)
        rest = f"{match['rest'][0]}{_CUT}" if match["rest"] else ""
        return f"{match['scheme']}://{user}{shown}{match['port'] or ''}{self._paths.of(path)}{rest}"

    @staticmethod
    def _is_content(host: str, path: str) -> bool:
        words = vocabulary()
        if not words.of_users(host):
            return False
        owner = path.split("/")[1] if "/" in path else ""
        return bool(owner) and owner.lower() not in words.organisations and not words.of_users(f"{host}{path}")
