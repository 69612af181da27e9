"""rosbag2 recordings: folders, `.mcap` and `.db3` files, compressed by zstd or not."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import zstandard
from ruamel.yaml import YAML

from polar_pipeline._util.files import temporary_folder
from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import SourceError, Span, check_size, megabytes, require_regular_file
from polar_pipeline.replay.mcapfile import McapFile, TimedMessage, Topics
from polar_pipeline.sensor.frames import FrameError

#: Largest size of `metadata.yaml` in bytes; each file and topic takes a few hundred.
_MAX_METADATA_BYTES = 1 << 20
#: A compressed file may take this many times the limit on disk when inflated: files of several gigabytes are common.
_DISK_FACTOR = 16
#: Bytes that are inflated at a time.
_PIECE_BYTES = 1 << 20
#: Suffixes of a recorder's files, and the one that is added to compressed files.
_SUFFIXES = (".mcap", ".db3")
_ZSTD = ".zstd"
#: Counts the tables of a database that are neither views nor virtual.
_TABLES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'"
#: The number of a recorder's file has fewer digits than this.
_MAX_DIGITS = 10

# ---------------------------------------------------------------------------------------------------------------- files


def is_bag_file(path: Path) -> bool:
    """Whether a file has the name of a recorder's file: `.mcap`, `.db3`, `.mcap.zstd` or `.db3.zstd`."""
    return PurePath(_plain_name(path)).suffix in _SUFFIXES


def bag_files(folder: Path) -> List[Path]:
    """A recorder's files in a folder, in the order of recording: by the number that their names end in.

    If a file exists both compressed and uncompressed, the compressed one is left out: a recorder that was killed had
    not finished it.
    """
    files = {path.name: path for path in folder.iterdir() if is_bag_file(path)}
    chosen = [path for name, path in files.items() if not (_is_zstd(path) and _plain_name(path) in files)]
    return sorted(chosen, key=lambda path: (_number(path), path.name))


def _is_zstd(path: Path) -> bool:
    return path.suffix == _ZSTD


def _plain_name(path: Path) -> str:
    """The name that a file has when it is not compressed."""
    return path.stem if _is_zstd(path) else path.name


def _number(path: Path) -> int:
    """The number behind the last `_` of a recorder's file, -1 if there is none."""
    number = PurePath(_plain_name(path)).stem.rpartition("_")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < _MAX_DIGITS else -1


@contextmanager
def inflated(path: Path, limit: int) -> Iterator[Path]:
    """A recorder's file, or while the block lasts an inflated copy of it if its name says that it is compressed.

    Raises:
        SourceError: The copy would take more on disk than `_DISK_FACTOR` times the limit.
        ZstdError: The file is damaged.
    """
    if not _is_zstd(path):
        yield path
        return
    most = _DISK_FACTOR * limit
    with temporary_folder("inflated") as folder:
        copy = folder / _plain_name(path)
        with path.open("rb") as stream, copy.open("wb") as out:
            source = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
            for piece in iter(lambda: source.read(_PIECE_BYTES), b""):
                if out.tell() + len(piece) > most:
                    raise SourceError(
                        f"{path} takes more than {megabytes(most)} on disk, {_DISK_FACTOR} times --max-mb"
                    )
                out.write(piece)
        yield copy


@contextmanager
def open_file(path: Path, limit: int) -> Iterator[Union[McapFile, Sqlite]]:
    """Open an `.mcap` or `.db3` file, compressed or not.

    Raises:
        SourceError: It cannot be read.
        Exception: Whatever damaged bytes make the libraries raise; see `limits.reading`.
    """
    require_regular_file(path)
    with inflated(path, limit) as plain:
        if plain.suffix == ".mcap":
            with plain.open("rb") as stream:
                yield McapFile(path, stream, limit)
        else:
            with closing(sqlite3.connect(f"{plain.resolve().as_uri()}?immutable=1", uri=True)) as base:
                yield Sqlite(path, base, limit)


class Sqlite:
    """The messages of an open `.db3` file.

    Attributes:
        path: The file.
        topics: Topics and types.

    Args:
        path: The file, for errors.
        base: The open database.
        limit: Largest size of a message in bytes.

    Raises:
        SourceError: It has no tables of messages and topics. Views and virtual tables may compute without end.
        sqlite3.Error: It is damaged.
    """

    def __init__(self, path: Path, base: sqlite3.Connection, limit: int) -> None:
        self.path = path
        self._base = base
        self._limit = limit
        if base.execute(_TABLES + " AND name IN ('messages', 'topics')").fetchone() != (2,):
            raise SourceError(f"{path} has no tables of messages and topics")
        counts = dict(base.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        self.topics: Topics = {}
        for number, name, kind in base.execute("SELECT id, name, type FROM topics WHERE serialization_format = 'cdr'"):
            if isinstance(name, str) and isinstance(kind, str):
                _, before = self.topics.get(name, ("", 0))
                self.topics[name] = (kind, before + counts.get(number, 0))

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        """Times and messages of a type on a topic, by time.

        Raises:
            SourceError: A message has no time.
            sqlite3.Error: The file is damaged.
        """
        chosen = "topic_id IN (SELECT id FROM topics WHERE name = ? AND type = ?)"
        for time_ns, _, data in self.rows(chosen, (topic, kind), span):
            yield time_ns, data

    def rows(
        self, chosen: str, values: Sequence[str] = (), span: Optional[Span] = None
    ) -> Iterator[Tuple[int, int, Union[bytes, FrameError]]]:
        """Times, numbers of the topics, and messages, by time, for which a condition in SQL holds.

        It raises what `messages` does.
        """
        query = (
            "SELECT timestamp, topic_id, typeof(data), length(data), CASE WHEN length(data) <= ? THEN data END"
            f" FROM messages WHERE {chosen}"
        )
        query += " AND timestamp >= ? AND timestamp < ?" if span else ""
        found = self._base.execute(f"{query} ORDER BY timestamp", (self._limit, *values, *(span or ())))
        for time_ns, number, stored, size, data in found:
            if not isinstance(time_ns, int):
                raise SourceError(f"{self.path} is damaged: the time of a message is {quoted(time_ns)}")
            if stored != "blob":
                yield time_ns, number, FrameError("cdr", f"a message is stored as {stored}, not as bytes")
            elif data is None:
                yield time_ns, number, FrameError("size", f"a message of {megabytes(size)} is too large (--max-mb)")
            else:
                yield time_ns, number, data

    def table(self, name: str) -> List[Dict[str, object]]:
        """The rows of a plain table by column; empty without such a table."""
        if self._base.execute(_TABLES + " AND name = ?", (name,)).fetchone() != (1,):
            return []
        found = self._base.execute(f"SELECT * FROM {name}")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row)) for row in found]

    def spans(self, topic: str) -> List[Span]:
        """The times of recording between which the messages on a topic lie; empty without any."""
        query = "SELECT min(timestamp), max(timestamp) FROM messages JOIN topics ON topic_id = topics.id WHERE name = ?"
        ((first, last),) = self._base.execute(query, (topic,))
        return [(first, last + 1)] if isinstance(first, int) and isinstance(last, int) else []


# -------------------------------------------------------------------------------------------------------------- folders


@dataclass(frozen=True)
class Folder:
    """The files of a recording, in the order of recording, and their topics."""

    files: Sequence[Path]
    topics: Topics
    limit: int
    is_compressed: bool = False

    def messages(self, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        """Times and messages of a type on a topic, file by file; it raises what `open_file` does."""
        for path in self.files:
            with open_file(path, self.limit) as file:
                yield from file.messages(topic, kind, span)

    def spans(self, topic: str) -> Optional[List[Span]]:
        """The times of each file that has messages on a topic; None where files are compressed."""
        if any(map(_is_zstd, self.files)):
            return None
        spans: List[Span] = []
        for path in self.files:
            with open_file(path, self.limit) as file:
                spans += file.spans(topic)
        return spans


def open_folder(path: Path, limit: int) -> Folder:
    """A rosbag2 folder, also one without `metadata.yaml`, which a recorder that was killed leaves.

    Raises:
        SourceError: A file is missing or of an unknown format, or there are files of several recordings.
        Exception: Whatever damaged bytes make the libraries raise; see `limits.reading`.
    """
    if (path / "metadata.yaml").exists():
        return _described(path, limit)
    files = bag_files(path)
    names = [PurePath(_plain_name(file)) for file in files]
    kinds = {(name.suffix, name.stem.rpartition("_")[0]) for name in names}
    if len(files) > 1 and (len(kinds) > 1 or len({_number(file) for file in files}) < len(files)):
        raise SourceError(f"{path} has no metadata.yaml, and files of several recordings: name one of them")
    topics: Topics = {}
    for part in files:
        with open_file(part, limit) as file:
            for topic, (kind, count) in file.topics.items():
                known, before = topics.get(topic, (kind, 0))
                topics[topic] = (known, before + (count if kind == known else 0))
    return Folder(files, topics, limit)


def _described(folder: Path, limit: int) -> Folder:
    """A rosbag2 folder as its `metadata.yaml` describes it."""
    path = folder / "metadata.yaml"
    check_size("a metadata.yaml", path.stat().st_size, _MAX_METADATA_BYTES)
    text = path.read_text(encoding="utf-8")
    if "<<" in text:  # nested merges take unlimited time and memory, and no recorder writes them
        raise SourceError(f"{path} merges mappings (<<), which no recorder writes")
    # the parser in C crashes the process on deeply nested values
    info = YAML(typ="safe", pure=True).load(text)["rosbag2_bagfile_information"]
    is_compressed = (info.get("compression_mode") or "none").lower() != "none"
    if is_compressed and info.get("compression_format") != "zstd":
        raise SourceError(f"{folder} is compressed by {quoted(info.get('compression_format'))}; zstd can be read")
    files = [folder / PurePath(name).name for name in info["relative_file_paths"]]
    for file in files:
        if not is_bag_file(file):
            raise SourceError(
                f"{folder} is stored as {quoted(info['storage_identifier'])}; sqlite3 and mcap can be read"
            )
        if not file.is_file():
            raise SourceError(f"{folder} lacks {quoted(file.name)}")
    topics: Topics = {}
    for row in info["topics_with_message_count"]:
        topic, count = row["topic_metadata"], row["message_count"]
        is_count = isinstance(count, int) and 0 <= count < 1 << 63
        if not (is_count and isinstance(topic["name"], str) and isinstance(topic["type"], str)):
            raise SourceError(f"{path} is damaged: a topic has no name, type or count")
        if topic["serialization_format"] == "cdr":
            topics[topic["name"]] = (topic["type"], count)
    return Folder(files, topics, limit, is_compressed)


#: What `topics`, `messages` and `spans` can be asked of.
Recording = Union[McapFile, Sqlite, Folder]
