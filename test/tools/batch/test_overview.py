"""The page of a batch: what it says, that names cannot inject anything, and how a real browser shows it."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

import cv2
import numpy as np
import pytest
from batch_samples import START, frame, summary

pytest.importorskip("pyarrow")

from polar_pipeline.replay.run import FrameProducts, ReplayedFrame, Summary
from polar_pipeline.tools.batch.overview import THUMBNAIL_SIDE, thumbnail, write_overview
from polar_pipeline.tools.batch.results import Outcome
from polar_pipeline.tools.batch.table import frame_table, table_path, write_table

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
HOSTILE = (
    "</script><script>document.title='taken'</script>\"'><img src=x onerror=\"document.title='taken'\">&lt;{{7*7}}"
)
RECORDINGS = 100


def result(name: str, **values: Any) -> Outcome:
    return Outcome(
        **{"name": name, "unit": "", "status": "ok", "reason": "", "device": "cpu: test", "seconds": 1.5, **values}
    )


def save(folder: Path, name: str, frames: List[ReplayedFrame]) -> Outcome:
    """A recording with a table."""
    write_table(frame_table(summary(frames)), table_path(folder, name))
    return result(name)


def data_of(page: Path) -> Dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    return json.loads(found.group(1))


# ------------------------------------------------------------------------------------------------------------ the page


def test_what_the_page_says(tmp_path: Path) -> None:
    frames = [frame(k, lowest=0.25 + k / 100, x=8, saturated=0.5, total=0.01) for k in range(50)]
    save(tmp_path, "a_b.c", [*frames, ReplayedFrame(None, "cdr", "")])
    results = [
        result("a_b.c", has_products=True, thumbnail="iVBORw=="),
        result("b", status="differs", reason="dolp: 0.3"),
        result("c", status="failed", reason="cut\x1b[0m off", device=""),
    ]
    write_overview(tmp_path, results, {"options": "<half>"})
    first, second, third = data_of(tmp_path / "index.html")["rows"]
    assert [first[key] for key in ("name", "status", "frames", "dropped", "late")] == ["a_b.c", "ok", 51, 1, 0]
    assert (first["duration"], first["rate"]) == (49 / 25, pytest.approx(50 / (49 / 25), rel=1e-5))
    for name in ("p50", "p95", "p99", "max"):
        assert first[name] == pytest.approx(10, rel=0.005)
    assert (first["ssim"], first["lowest"], first["at"]) == (0.875, 0.25, "lower left (8, 48)")
    assert (first["saturated"], first["dark"], first["dolp"]) == (50, 12.5, 0.0625)
    assert (first["report"], first["table"]) == (
        "./recordings/a_b.c/report.html",
        "./frames/recording%3Da_b.c",
    )
    assert first["thumbnail"] == "data:image/png;base64,iVBORw=="
    (minute,) = first["minutes"]
    assert minute["at"] == "lower left (8, 48), 100 %"
    assert [minute[key] for key in ("start", "frames", "lowest", "dropped", "saturated")] == [
        *("2023-11-14 22:13", "51", "0.4950", "1", "50.000")
    ]
    assert (second["status"], second["table"]) == ("failed", "")
    assert second["reason"].startswith("dolp: 0.3; ")
    assert (third["status"], third["reason"], third["seconds"]) == ("failed", "cut\\x1b[0m off", None)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<td>options</td><td class="text">&lt;half&gt;</td>' in text
    assert "3: 1 ok, 0 differs, 2 failed" in text
    assert "51, and 1 dropped; 0.00 hours" in text
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", text)  # nothing from elsewhere


def test_worst_minutes_of_all_recordings(tmp_path: Path) -> None:
    """Ten, of one recording at most three: here six of one, and two of each of many others, which are less bad."""
    lowest = {"bad": 0.1, **{f"fair{k}": 0.5 + (k * 7 % 30) / 100 for k in range(30)}}
    for name, value in lowest.items():
        minutes = range(6 if name == "bad" else 2)
        save(tmp_path, name, [frame(0, stamp=START + k * 61 * 10**9, lowest=value + k / 1000) for k in minutes])
    write_overview(tmp_path, map(result, lowest), {})
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r'data-recording="(\w+)"', text.partition("Most saturated")[0])
    fair = sorted((name for name in lowest if name != "bad"), key=lambda name: lowest[name])
    assert listed == [*["bad"] * 3, *(name for name in fair[:4] for _ in range(2))][:10]
    assert "Most frames dropped" not in text  # none is
    write_overview(tmp_path, [], {})
    assert data_of(tmp_path / "index.html")["rows"] == []


def test_names_cannot_inject(tmp_path: Path) -> None:
    names = [HOSTILE, "javascript:alert(1)", "//host/x", "\"onclick='alert(1)'"]
    for name in names:
        save(tmp_path, name, [frame(0)])
    results = [result(name, has_products=True, reason=HOSTILE, device=HOSTILE, status="differs") for name in names]
    write_overview(tmp_path, results, {HOSTILE: HOSTILE})
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    markup, scripts = re.subn("<script.*?</script>", "", text, flags=re.DOTALL)
    assert scripts == 2
    assert "<img" not in markup
    assert re.findall(r"""\s(on\w+|href|src)=["']([^"']*)""", markup) == [("href", "#recordings")]
    rows = data_of(tmp_path / "index.html")["rows"]
    assert [row["report"] for row in rows[1:]] == [
        "./recordings/javascript%3Aalert%281%29/report.html",
        "./recordings///host/x/report.html",
        "./recordings/%22onclick%3D%27alert%281%29%27/report.html",
    ]
    assert all(row["table"].startswith("./frames/recording%3D") for row in rows)
    assert rows[0]["reason"] == HOSTILE


# ---------------------------------------------------------------------------------------------------------- thumbnails


def sample(**products: np.ndarray) -> Summary:
    return replace(summary([]), samples=[FrameProducts(START, products)])


def decoded(frames: Summary) -> bytes:
    return base64.b64decode(thumbnail(frames))


@pytest.mark.parametrize("shape", [(1024, 1224), (40, 60), (10, 900), (900, 10)])
def test_thumbnails_are_small_and_look_like_the_product(shape: Tuple[int, int]) -> None:
    x = np.mgrid[: shape[0], : shape[1]][1]
    image = (x * 255 // shape[1]).astype(np.uint8)
    png = decoded(sample(dolp=np.zeros(shape, np.float32), intensity=image, ssim=np.float32(1)))
    assert png.startswith(b"\x89PNG")
    got = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    assert got.ndim == 2
    assert max(got.shape) <= THUMBNAIL_SIDE <= 160
    want = cv2.resize(image, got.shape[::-1], interpolation=cv2.INTER_AREA)
    assert np.abs(got.astype(int) - want).max() <= 24
    assert thumbnail(replace(summary([]), samples=[])) == thumbnail(sample(ssim=np.float32(1))) == ""
    noise = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    assert len(decoded(sample(preview=noise))) < 20_000


# --------------------------------------------------------------------------------------------------------- the browser

#: Notes what is shown by the address alone. Then does what a reader would: type a filter, choose a status, sort by two
#: columns, the second twice, and open minutes.
ACTIONS = """<script>
document.body.dataset.before = document.querySelectorAll("#table tbody tr:not([hidden])").length;
document.body.dataset.first = document.querySelector("#table tbody tr:not([hidden]) .name").textContent;
const press = (selector) => document.querySelector(selector).click();
const put = (id, value, event) => {
  document.getElementById(id).value = value;
  document.getElementById(id).dispatchEvent(new Event(event, { bubbles: true }));
};
put("filter", "ROBOT 3 lowest<0.5", "input");
put("status", "ok", "change");
press("button[data-key=name]");
press("button[data-key=seconds]");
press("button[data-key=seconds]");
press("tr:not([hidden]) button[aria-expanded]");
document.body.dataset.address = location.hash;
document.body.dataset.focusable = document.querySelectorAll("th button").length;
</script></body>"""


def shown(dom: str) -> List[str]:
    """Names of the recordings that are shown, in their order."""
    lines = re.findall(r"<tr( hidden=\"\")?><td class=\"first text\">.*?class=\"name\">(.*?)</span>", dom, re.DOTALL)
    return [html.unescape(name) for hidden, name in lines if not hidden]


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome to show the page in")
def test_a_browser_sorts_and_filters(tmp_path: Path) -> None:
    names = [f"robot {k % 7} run {k}.mcap" for k in range(RECORDINGS - 1)] + [HOSTILE]
    lowest = [0.9 - (k * 7 % 20) / 25 for k in range(RECORDINGS)]
    seconds = [float(k * 37 % RECORDINGS) for k in range(RECORDINGS)]
    png, results = thumbnail(summary([])), []
    for k, name in enumerate(names):
        save(tmp_path, name, [frame(i, lowest=lowest[k]) for i in range(5)])
        status, reason = ("failed", "cut off") if k % 5 == 2 else ("ok", "")
        results.append(result(name, status=status, reason=reason, thumbnail=png, seconds=seconds[k]))
    write_overview(tmp_path, results, {})
    page = tmp_path / "index.html"
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", ACTIONS), encoding="utf-8")
    assert BROWSER
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    address = f"{page.as_uri()}#sort=name&order=descending&filter=cut+seconds%3E%3D{RECORDINGS // 2}&status=failed"
    done = subprocess.run(
        [BROWSER, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", address],
        capture_output=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    dom = done.stdout.decode()
    failed = [k for k in range(RECORDINGS) if k % 5 == 2 and seconds[k] >= RECORDINGS // 2]
    assert f'data-before="{len(failed)}"' in dom
    # numbers in names are sorted as numbers
    assert f'data-first="{names[max(failed, key=lambda k: (k % 7, k))]}"' in dom
    want = [k for k, name in enumerate(names) if name != HOSTILE and "3" in name and lowest[k] < 0.5 and k % 5 != 2]
    assert shown(dom) == [names[k] for k in sorted(want, key=lambda k: -seconds[k])]
    assert len(want) > 3
    assert f"{len(want)} of {RECORDINGS} recordings" in dom
    assert dom.count('aria-sort="descending"') == 1
    assert f"<title>Batch of {RECORDINGS} recordings</title>" in dom  # which the hostile name would have changed
    assert dom.count('<img loading="lazy"') == RECORDINGS
    address = html.unescape(re.findall(r'data-address="(.*?)"', dom)[0])
    assert address == "#sort=seconds&order=descending&filter=ROBOT+3+lowest%3C0.5&status=ok"
    assert 'data-focusable="16"' in dom
    assert dom.count('aria-expanded="true"') == 1
    listed = dom.count("data-recording=")  # worst minutes of all recordings
    assert dom.count("2023-11-14 22:13</td>") == listed + 1
