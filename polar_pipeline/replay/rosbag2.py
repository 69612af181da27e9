"""Messages of rosbag2 recordings, folders and single `.db3` files, read in bounded memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from ruamel.yaml import YAML

from polar_pipeline._util.files import temporary_folder
from polar_pipeline._util.text import quoted
from polar_pipeline.replay.limits import BoundedFile, SourceError, Span, inflated_pieces, megabytes, too_large
from polar_pipeline.replay.mcapfile import McapFile
from polar_pipeline.sensor.frames import FrameError

#: Largest size of `metadata.yaml` in bytes; each file and topic takes a few hundred.
_MAX_METADATA_BYTES = 1 << 20
#: A compressed file may take this many times the limit on disk when inflated: files of several gigabytes are common.
_DISK_FACTOR = 16
#: Suffixes of a recorder's files, and the one that is added to compressed files.
_SUFFIXES = (".mcap", ".db3")
_ZSTD = ".zstd"
#: The number of a recorder's file has fewer digits than this.
_MAX_DIGITS = 10

#: Names and definitions of a database's tables.
_TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"

#: Topic -> type and number of its messages.
Topics = Dict[str, Tuple[str, int]]
#: Time of recording, and the bytes of a message or why it cannot be read.
TimedMessage = Tuple[int, Union[bytes, memoryview, FrameError]]


@dataclass(frozen=True)
class BagMetadata:
    """The contents of a rosbag2 folder's `metadata.yaml`.

    Attributes:
        topics: Its topics.
        files: Its files, in the order of recording.
        storage: Their format: `sqlite3` or `mcap`.
        compression: What is compressed by zstd: `file`, `message`, or "" for nothing.
    """

    topics: Topics
    files: List[Path]
    storage: str
    compression: str


@dataclass(frozen=True)
class RecordedTopic:
    """A topic as a file describes it.

    Attributes:
        name: The topic.
        kind: Type of its messages; "" where the file does not say.
        encoding: How they are serialized.
        definition_encoding: Language of the type's definition, such as `ros2msg`; "" without one.
        definition: The definition of the type; empty without one.
        metadata: Names and values, such as the `offered_qos_profiles`.
    """

    name: str
    kind: str
    encoding: str
    definition_encoding: str
    definition: bytes
    metadata: Tuple[Tuple[str, str], ...]


def read_metadata(folder: Path) -> BagMetadata:
    """The `metadata.yaml` of a rosbag2 folder.

    Raises:
        SourceError: A file is missing, or its storage or compression is unknown.
        Exception: What the YAML library raises on a damaged file; see `limits.reading`.
    """
    with BoundedFile(folder / "metadata.yaml", _MAX_METADATA_BYTES) as stream:
        text = stream.read().decode()
    if "<<" in text:  # nested merges take unlimited time and memory, and no recorder writes them
        raise SourceError(f"{folder / 'metadata.yaml'} merges mappings (<<), which no recorder writes")
    # the parser in C crashes the process on deeply nested values
    info = YAML(typ="safe", pure=True).load(text)["rosbag2_bagfile_information"]
    storage = info["storage_identifier"]
    if storage not in ("sqlite3", "mcap"):
        raise SourceError(f"{folder} is stored as {quoted(storage)}; sqlite3 and mcap can be read")
    mode, kind = (info.get("compression_mode") or "").lower(), info.get("compression_format") or ""
    mode = "" if mode == "none" else mode
    if mode not in ("", "file", "message") or (mode and kind != "zstd"):
        raise SourceError(f"{folder} is compressed by {quoted(kind)} in mode {quoted(mode)}; zstd can be read")
    files = [folder / PurePath(name).name for name in info["relative_file_paths"]]
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise SourceError(f"{folder} lacks {quoted(missing[0].name)}")
    topics: Topics = {}
    for row in info["topics_with_message_count"]:
        topic, count = row["topic_metadata"], row["message_count"]
        is_count = isinstance(count, int) and 0 <= count < 1 << 63
        if not (is_count and isinstance(topic["name"], str) and isinstance(topic["type"], str)):
            raise SourceError(f"{folder / 'metadata.yaml'} is damaged: a topic has no name, type or count")
        if topic["serialization_format"] == "cdr":
            topics[topic["name"]] = (topic["type"], count)
    return BagMetadata(topics, files, storage, mode)


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


def scan(path: Path, limit: int) -> BagMetadata:
    """The metadata of a recorder's file, or of a folder without `metadata.yaml`, which a killed recorder leaves.

    Raises:
        SourceError: The files of the folder belong to several recordings, or one was cut off.
        Exception: Whatever damaged bytes make the libraries raise; see `limits.reading`.
    """
    files = bag_files(path) if path.is_dir() else [path]
    names = [PurePath(_plain_name(file)) for file in files]
    kinds = {(name.suffix, name.stem.rpartition("_")[0]) for name in names}
    if len(files) > 1 and (len(kinds) > 1 or len({_number(file) for file in files}) < len(files)):
        raise SourceError(f"{path} has no metadata.yaml, and files of several recordings: name one of them")
    topics: Topics = {}
    for file in files:
        with inflated(file, limit) as plain:
            if plain.suffix == ".db3":
                found = sqlite_topics(plain)
            else:
                with BoundedFile(plain, limit) as stream:
                    found = mcap_topics(McapFile(plain, stream, limit), file)
        for topic, (kind, count) in found.items():
            known, before = topics.get(topic, (kind, 0))
            topics[topic] = (known, before + (count if kind == known else 0))
    return BagMetadata(topics, files, "sqlite3" if names[0].suffix == ".db3" else "mcap", "")


def mcap_topics(file: McapFile, path: Path) -> Topics:
    """The topics of an mcap file.

    Raises:
        SourceError: The file does not say how many messages they have.
    """
    if file.counts is None:
        raise SourceError(f"{path} does not say how many messages it holds (`mcap recover` counts them)")
    topics: Topics = {}
    for number, topic in file.topics.items():
        _, before = topics.get(topic, ("", 0))
        topics[topic] = (file.kinds[number], before + file.counts.get(number, 0))
    return topics


def folder_rows(meta: BagMetadata, topic: str, limit: int, span: Optional[Span] = None) -> Iterator[TimedMessage]:
    """The messages on a topic of a rosbag2 folder, file by file; in compression mode `message` still compressed."""
    kind, _ = meta.topics[topic]
    for path in meta.files:
        with inflated(path, limit) as plain:
            if meta.storage == "sqlite3":
                yield from sqlite_rows(plain, topic, kind, limit, span)
            else:
                with BoundedFile(plain, limit) as stream:
                    yield from mcap_rows(McapFile(plain, stream, limit), topic, kind, span)


def folder_spans(meta: BagMetadata, topic: str, limit: int) -> Optional[List[Span]]:
    """The times of each file of a rosbag2 folder that has messages on a topic; None where files are compressed."""
    if any(map(_is_zstd, meta.files)):
        return None
    spans: List[Span] = []
    for path in meta.files:
        if meta.storage == "sqlite3":
            found = sqlite_span(path, topic)
        else:
            with BoundedFile(path, limit) as stream:
                found = McapFile(path, stream, limit).span([topic])
        spans += [] if found is None else [found]
    return spans


@contextmanager
def inflated(path: Path, limit: int) -> Iterator[Path]:
    """A recorder's file, or while the block lasts an inflated copy of it if its name says that it is compressed.

    Raises:
        TooLargeError: It would take more on disk than `_DISK_FACTOR` times the limit.
        Exception: Whatever the decompressor raises on damaged bytes.
    """
    if not _is_zstd(path):
        yield path
        return
    with temporary_folder("inflated") as folder:
        copy = folder / _plain_name(path)
        with BoundedFile(path, limit) as source, copy.open("wb") as out:
            for piece in inflated_pieces(source, "zstd"):
                if out.tell() + len(piece) > _DISK_FACTOR * limit:
                    raise too_large(path, f"more than {megabytes(_DISK_FACTOR * limit)} on disk", limit)
                out.write(piece)
        yield copy


def mcap_rows(file: McapFile, topic: str, kind: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
    """The messages of a type on a topic of an mcap file, by time; it raises what `McapFile.messages` does."""
    return ((row.time_ns, row.data) for row in file.messages([topic], span) if file.kinds[row.connection] == kind)


# ------------------------------------------------------------------------------------------------------------- sqlite3


def sqlite_topics(path: Path) -> Topics:
    """The topics of a `.db3` file.

    Raises:
        SourceError: It has no tables of messages and topics, or they compute their values.
        Exception: Whatever damaged bytes make the sqlite3 library raise; see `limits.reading`.
    """
    with _database(path) as base:
        counts = dict(base.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        rows = base.execute("SELECT id, name, type FROM topics WHERE serialization_format = 'cdr'").fetchall()
    topics: Topics = {}
    for number, name, kind in rows:
        if isinstance(name, str) and isinstance(kind, str):
            _, before = topics.get(name, ("", 0))
            topics[name] = (kind, before + counts.get(number, 0))
    return topics


def sqlite_topic_records(path: Path) -> List[RecordedTopic]:
    """The topics of a `.db3` file as it describes them; it raises what `sqlite_topics` does."""
    with _database(path) as base:
        rows = _rows(base, "topics")
        definitions = {row["topic_type"]: row for row in _rows(base, "message_definitions")}  # since ROS 2 Iron
    topics = []
    for row in rows:
        known = definitions.get(row["type"], {"encoding": "", "encoded_message_definition": ""})
        qos = row.get("offered_qos_profiles", "")
        values = (row["name"], row["type"], row["serialization_format"], known["encoding"], qos)
        text = known["encoded_message_definition"]
        if not all(isinstance(value, str) for value in (*values, text)):
            raise SourceError(f"{path} is damaged: a topic is not described by texts")
        topics.append(RecordedTopic(*values[:4], text.encode(), (("offered_qos_profiles", qos),)))
    return topics


def _rows(base: sqlite3.Connection, table: str) -> List[Dict[str, Any]]:
    """The rows of a table by column; nothing without such a table."""
    if not base.execute(f"{_TABLES} AND name = '{table}'").fetchall():
        return []
    found = base.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in found.description]
    return [dict(zip(names, row)) for row in found]


def sqlite_span(path: Path, topic: str) -> Optional[Span]:
    """The times between which the messages on a topic of a `.db3` file lie; None without any."""
    query = (
        "SELECT min(timestamp), max(timestamp) FROM messages WHERE topic_id IN (SELECT id FROM topics WHERE name = ?)"
    )
    with _database(path) as base:
        ((first, last),) = base.execute(query, (topic,))
    return (first, last + 1) if isinstance(first, int) and isinstance(last, int) else None


def sqlite_rows(path: Path, topic: str, kind: str, limit: int, span: Optional[Span] = None) -> Iterator[TimedMessage]:
    """The messages of a type on a topic of a `.db3` file, by time.

    Raises:
        SourceError: It has no tables of messages and topics, or a message has no time.
        Exception: Whatever damaged bytes make the sqlite3 library raise; see `limits.reading`.
    """
    query = (
        "SELECT timestamp, typeof(data), length(data), CASE WHEN typeof(data) = 'blob' AND length(data) <= ? THEN data"
        " END FROM messages WHERE topic_id IN (SELECT id FROM topics WHERE name = ? AND type = ?)"
    )
    query += " ORDER BY timestamp" if span is None else " AND timestamp >= ? AND timestamp < ? ORDER BY timestamp"
    with _database(path) as base:
        for time_ns, stored, size, data in base.execute(query, (limit, topic, kind, *(span or ()))):
            if not isinstance(time_ns, int):
                raise SourceError(f"{path} is damaged: the time of a message is {quoted(time_ns)}")
            if data is not None:
                yield time_ns, data
            elif stored != "blob":
                yield time_ns, FrameError("cdr", f"a message is stored as {stored}, not as bytes")
            else:
                yield time_ns, FrameError("size", f"a message of {megabytes(size)}, the limit is {megabytes(limit)}")


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    """A `.db3` file, open for reading, whose tables are plain tables."""
    if not path.is_file():  # sqlite3 would wait for the writer of a pipe
        raise SourceError(f"{path} is no regular file")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as base:
        tables: Dict[str, Optional[Any]] = dict(
            base.execute(_TABLES + " AND name IN ('messages', 'topics', 'message_definitions')")
        )
        if not {"messages", "topics"} <= set(tables):
            raise SourceError(f"{path} has no tables of messages and topics")
        for name, sql in tables.items():
            # a computed column can make gigabytes of a few bytes, and a virtual table anything
            computed = [row for row in base.execute(f"PRAGMA table_xinfo({name})") if row[-1] != 0]
            if computed or "virtual" in str(sql).lower().split()[:3]:
                raise SourceError(f"{path} computes the values of its table {name}, which no recorder does")
        yield base
