"""Pseudonyms of paths and URLs: what is common to many machines stays, so that a traceback can still be read."""

from __future__ import annotations

from collections.abc import Callable

from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction.identities import Identities
from nccl_triage.redaction.kept_words import vocabulary
from nccl_triage.redaction.names import KnownNames
from nccl_triage.redaction.pseudonyms import Pseudonyms

_HOMES = frozenset({"home", "homes", "users", "user"})
_PYTHON = lazily(r"python\d(?:\.\d+)?t?")
_SUFFIX = lazily(r"(?P<stem>.+?)(?P<suffix>(?:\.[A-Za-z0-9]{1,12}){1,3})")
_LIBRARY = lazily(r"lib[\w+.-]{1,64}\.so(?:\.\d+){0,4}")
#: File systems of the kernel: all that is in them belongs to it.
_SYSTEM = frozenset({"proc", "sys", "dev"})
#: Ends of names up to this length are types of files, known or not.
_SHORT = 3
#: What is no path although it stands where one is expected.
_NO_PATH = frozenset({"", "-", ".", "..", "/", "<stdin>", "<string>"})


class Paths:
    """Makes pseudonyms of paths; ``user`` takes the name of a home, ``known`` holds names that parts may contain."""

    def __init__(self, pseudonyms: Pseudonyms, user: Callable[[str], str], known: KnownNames) -> None:
        self._pseudonyms, self._user, self._known = pseudonyms, user, known

    def of(self, path: str, separator: str = "/") -> str:
        """Return a path, absolute or not, with what names somebody replaced."""
        if path in _NO_PATH:
            return path
        folders = path.split(separator)
        base = folders.pop() if _SUFFIX.fullmatch(folders[-1]) else None  # else most likely a folder
        made = self._folders(folders, separator)
        if base is not None:
            made.append(self._known.replace(base) if any(map(_is_published, folders)) else self.file(base))
        return separator.join(made)

    def file(self, name: str) -> str:
        """Return the name of a file: as it is when it is made of common words, or is a source of a library."""
        match = _SUFFIX.fullmatch(name)
        if match is None:
            return name
        stem, suffix = match["stem"], match["suffix"]
        while suffix.count(".") > 1 and (not _is_suffix(first := suffix.split(".")[1]) or any(self._known.find(first))):
            stem, suffix = f"{stem}.{suffix.split('.')[1]}", f".{suffix.split('.', 2)[2]}"
        last = suffix.rpartition(".")[2].lower()
        if any(self._known.find(last)):  # a host, and no type of file
            stem, suffix, last = name, "", ""
        if last in vocabulary().library_suffixes or _LIBRARY.fullmatch(name):
            return self._known.replace(name)
        kept = self._part(stem, prose=True)
        if kept is not None and _is_suffix(last):
            return f"{kept}{suffix}"
        shown = self._pseudonyms.of("files", name.lower()) + (suffix if _is_suffix(last) else "")
        self._known.add(name, shown)
        return shown

    def _folders(self, folders: list[str], separator: str) -> list[str]:
        made: list[str] = []
        group = 0  # folders at the end of those seen that become one pseudonym
        for index, folder in enumerate(folders):
            if (
                _is_published(folder)
                or _is_system(folders, index)
                or (_PYTHON.fullmatch(folder) and index and folders[index - 1] == "lib")
            ):
                made += self._group(folders[:index], group, separator)
                return [*made, *map(self._known.replace, folders[index:])]
            named = self._user(folder) if _in_home(folders, index) else self._part(folder)
            if named is None:
                group += 1
                continue
            made += [*self._group(folders[:index], group, separator), named]
            group = 0
        return [*made, *self._group(folders, group, separator)]

    def _part(self, part: str, prose: bool = False) -> str | None:
        """Return a part of a path that can stay, names in it replaced, or None when it has to become a pseudonym."""
        made, done = [], 0
        for start, end, replacement in [*self._known.find(part), (len(part), len(part), "")]:
            piece = self._pseudonyms.without(part[done:start])
            if piece is None or not vocabulary().common(piece, prose):
                return None
            made += [part[done:start], replacement]
            done = end
        return "".join(made)

    def _group(self, folders: list[str], length: int, separator: str) -> list[str]:
        return [self._pseudonyms.of("paths", separator.join(folders))] if length else []


def _is_suffix(part: str) -> bool:
    """Tell whether the end of a file's name tells its type: anything short, or a known one."""
    words = vocabulary()
    return len(part) <= _SHORT or part.lower() in words.suffixes | words.library_suffixes or words.common(part)


def _in_home(folders: list[str], index: int) -> bool:
    """Tell whether a folder is somebody's home: below ``home``, but not below ``/home/user``."""
    homes = [folder.lower() in _HOMES for folder in folders[max(0, index - 2) : index]]
    return bool(folders[index]) and homes[-1:] == [True] and homes != [True, True]


def _is_system(folders: list[str], index: int) -> bool:
    """Tell whether an absolute path goes on in a file system of the kernel; in shared memory anybody has files."""
    return index > 1 and folders[0] == "" and folders[1] in _SYSTEM and folders[index] != "shm" and folders[2] != "shm"


def _is_published(folder: str) -> bool:
    return folder in vocabulary().published


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

    def __init__(self, paths: Paths, people: Identities) -> None:
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
