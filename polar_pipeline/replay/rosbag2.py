"""Files of a recorder, and who reads them: `bags`, or without the extra `recordings` rosbag2_py, which ROS 2 brings.

The use of rosbag2_py is written from its sources of Humble, Jazzy and Rolling, and tested with a stand-in: no wheel of
it exists.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, cast

from polar_pipeline._util.imports import importing
from polar_pipeline.replay.limits import Span

if TYPE_CHECKING:
    from polar_pipeline.replay.bags import Bag, TimedMessage


#: Suffixes of a recorder's files, and the one that is added to compressed files.
SUFFIXES = (".mcap", ".db3")
ZSTD = ".zstd"
#: What the name of a recorder's file begins with, and its number.
_NUMBERED = re.compile(r"(.*?)(?:_([0-9]{1,9}))?")


def is_bag_file(path: Path) -> bool:
    """Return whether a file has the name of a recorder's file: `.mcap`, `.db3`, `.mcap.zstd` or `.db3.zstd`."""
    return PurePath(plain_name(path)).suffix in SUFFIXES


def bag_files(folder: Path) -> List[Path]:
    """List a recorder's files in a folder in the order of recording: by the number that their names end in.

    If a file exists both compressed and uncompressed, the compressed one is left out: a recorder that was killed had
    not finished it.
    """
    files = {path.name: path for path in folder.iterdir() if is_bag_file(path)}
    chosen = [path for name, path in files.items() if not (path.suffix == ZSTD and plain_name(path) in files)]
    return sorted(chosen, key=lambda path: (numbered(path)[1], path.name))


def plain_name(path: Path) -> str:
    """Return the name that a file has when it is not compressed."""
    return path.stem if path.suffix == ZSTD else path.name


def numbered(path: Path) -> Tuple[str, int]:
    """Split the name of a recorder's file into the name without its number, and the number, or -1 without one."""
    name = PurePath(plain_name(path))
    start, number = re.fullmatch(_NUMBERED, name.stem).groups()  # type: ignore[union-attr]
    return f"{start}{name.suffix}", int(number or -1)


class RosbagReader:
    """An open mcap file, or a rosbag2 folder of such files; in place of a `Bag`, without `records`.

    Args:
        path: The file or the folder.

    Raises:
        RuntimeError: The recording cannot be read. The methods raise it too.
    """

    compression = ""
    is_cut = False

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = self._open().get_metadata().topics_with_message_count
        self.topics: Dict[str, Tuple[str, int]] = {
            row.topic_metadata.name: (row.topic_metadata.type, row.message_count) for row in rows
        }

    def _open(self) -> Any:
        """Open a reader at the first message."""
        with importing():
            import rosbag2_py

        reader = rosbag2_py.SequentialReader()
        reader.open(rosbag2_py.StorageOptions(str(self._path), "mcap"), rosbag2_py.ConverterOptions("", ""))
        return reader

    def messages(self, topic: str, _: str, span: Optional[Span] = None) -> Iterator[TimedMessage]:
        """Yield times and messages on a topic in CDR, by time; see `Bag.messages`."""
        import rosbag2_py

        reader = self._open()
        reader.set_filter(rosbag2_py.StorageFilter([topic]))
        if span is not None:
            reader.seek(max(span[0], 0))
        while reader.has_next():
            _, data, time_ns = reader.read_next()
            if span is not None and time_ns >= span[1]:
                return
            yield time_ns, data

    def spans(self) -> Optional[List[Span]]:
        """Return None: the recording is not divided."""


@contextmanager
def open_recording(path: Path, limit: int, takes_cut: bool = False) -> Iterator[Bag]:
    """Open a recording as `bags.open_recording` does, or by rosbag2_py if a library that it needs does not work.

    Raises:
        ImportError: Neither the extra nor rosbag2_py works, or the recording is not mcap.
    """
    try:
        with importing():
            from polar_pipeline.replay import bags
    except ImportError:
        files = bag_files(path) if path.is_dir() else [path]
        if find_spec("rosbag2_py") is None or {file.suffix for file in files} != {".mcap"}:
            raise
        yield cast("Bag", RosbagReader(path))
        return
    with bags.open_recording(path, limit, takes_cut) as bag:
        yield bag
