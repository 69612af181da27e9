"""Files of a recorder, and who reads them: `bags`, or without the extra `recordings` rosbag2_py, which ROS 2 brings.

The use of rosbag2_py is written from its sources of Humble, Jazzy and Rolling, and tested with a stand-in: no wheel of
it exists.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterator, List, Optional, Tuple, cast

from polar_pipeline._util.imports import importing
from polar_pipeline._util.paths import is_hidden
from polar_pipeline._util.text import SHOWN_REASON, printable

if TYPE_CHECKING:
    from polar_pipeline.replay.bags import Bag, Key, TypedMessage

_LOG = logging.getLogger(__name__)
#: Suffixes of a recorder's files, and the one that is added to compressed files.
SUFFIXES = (".mcap", ".db3")
ZSTD = ".zstd"


def is_bag_file(path: Path) -> bool:
    """Return whether a file has the name of a recorder's file: `.mcap`, `.db3`, `.mcap.zstd` or `.db3.zstd`."""
    return PurePath(plain_name(path)).suffix.lower() in SUFFIXES


def bag_files(folder: Path) -> List[Path]:
    """List a recorder's files in a folder in the order of recording: by the number that their names end in.

    Hidden files are left out: systems such as macOS leave them, and they are not recordings.
    If a file exists both compressed and uncompressed, the compressed one is left out: a recorder that was killed had
    not finished it.
    """
    files = {path.name: path for path in folder.iterdir() if is_bag_file(path) and not is_hidden(path)}
    chosen = [path for name, path in files.items() if not (is_zstd(path) and plain_name(path) in files)]
    return sorted(chosen, key=lambda path: (numbered(path)[1], path.name))


def is_zstd(path: Path) -> bool:
    """Return whether the name of a file says that all of it is compressed."""
    return path.suffix.lower() == ZSTD


def plain_name(path: Path) -> str:
    """Return the name that a file has when it is not compressed."""
    return path.stem if is_zstd(path) else path.name


def numbered(path: Path) -> Tuple[str, int]:
    """Split the name of a recorder's file into the name without its number, and the number, or -1 without one."""
    name = PurePath(plain_name(path))
    start, number = re.fullmatch(r"(.*?)(?:_([0-9]{1,9}))?", name.stem).groups()  # type: ignore[union-attr]
    return f"{start}{name.suffix}", int(number or -1)


class RosbagReader:
    """An open mcap file, or a rosbag2 folder of such files; in place of a `Bag`, without `records`.

    Raises:
        RuntimeError: The recording cannot be read. The methods raise it too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = self._open().get_metadata().topics_with_message_count
        self.topics: Dict[Tuple[str, str], int] = {
            (row.topic_metadata.name, row.topic_metadata.type): row.message_count for row in rows
        }

    def _open(self) -> Any:
        """Open a reader at the first message."""
        with importing():
            import rosbag2_py

        reader = rosbag2_py.SequentialReader()
        reader.open(rosbag2_py.StorageOptions(str(self._path), "mcap"), rosbag2_py.ConverterOptions("", ""))
        return reader

    def messages(self, keys: Collection[Key], time_ns: Optional[int] = None) -> Iterator[TypedMessage]:
        """Yield messages in CDR, by time; see `Bag.messages`."""
        import rosbag2_py

        kinds = dict(keys)
        reader = self._open()
        reader.set_filter(rosbag2_py.StorageFilter(list(kinds)))
        if time_ns is not None:
            reader.seek(time_ns)
        while reader.has_next():
            topic, data, row_ns = reader.read_next()
            if time_ns is not None and row_ns != time_ns:
                return
            yield kinds[topic], row_ns, data


@contextmanager
def open_recording(path: Path, limit: int, takes_cut: bool = False) -> Iterator[Bag]:
    """Open a recording as `bags.open_recording` does, or by rosbag2_py if a library that it needs does not work.

    What is wrong with a recording that can be read is logged.

    Raises:
        ImportError: Neither the extra nor rosbag2_py works, or the recording is not mcap.
    """
    try:
        with importing():
            from polar_pipeline.replay import bags
    except ImportError:
        files = bag_files(path) if path.is_dir() else [path]
        if find_spec("rosbag2_py") is None or {file.suffix.lower() for file in files} != {".mcap"}:
            raise
        yield cast("Bag", RosbagReader(path))
        return
    with bags.open_recording(path, limit, takes_cut) as bag:
        if bag.remark:
            _LOG.warning("%s", printable(bag.remark, SHOWN_REASON))
        yield bag
