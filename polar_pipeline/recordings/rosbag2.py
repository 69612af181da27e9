"""Reader of a recorder's files: `bags`, or without the extra `recordings` rosbag2_py, which is part of ROS 2.

The use of rosbag2_py is written from its sources of Humble, Jazzy and Rolling, and tested with a stand-in: no wheel of
it exists.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Dict, Iterator, Optional, Tuple, cast

from polar_pipeline._util.imports import importing
from polar_pipeline._util.text import SHOWN_REASON, printable
from polar_pipeline.recordings.bag_names import bag_files

if TYPE_CHECKING:
    from polar_pipeline.recordings.bags import Bag, Key, TypedMessage

_LOG = logging.getLogger(__name__)


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

        message_types = dict(keys)
        reader = self._open()
        reader.set_filter(rosbag2_py.StorageFilter(list(message_types)))
        if time_ns is not None:
            reader.seek(time_ns)
        while reader.has_next():
            topic, data, row_ns = reader.read_next()
            if time_ns is not None and row_ns != time_ns:
                return
            yield message_types[topic], row_ns, data


@contextmanager
def open_recording(path: Path, limit: int, allow_truncated: bool = False) -> Iterator[Bag]:
    """Open a recording as `bags.open_recording` does, or by rosbag2_py if a library that it needs does not work.

    Remarks about a recording that can be read are logged.

    Raises:
        ImportError: Neither the extra nor rosbag2_py works, or the recording is not mcap.
    """
    try:
        with importing():
            from polar_pipeline.recordings import bags
    except ImportError:
        files = bag_files(path) if path.is_dir() else [path]
        if find_spec("rosbag2_py") is None or {file.suffix.lower() for file in files} != {".mcap"}:
            raise
        yield cast("Bag", RosbagReader(path))
        return
    with bags.open_recording(path, limit, allow_truncated) as bag:
        if bag.remark:
            _LOG.warning("%s", printable(bag.remark, SHOWN_REASON))
        yield bag
