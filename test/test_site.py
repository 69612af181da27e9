"""The documentation site as it is built: links, pictures, colors, examples; in a browser, what fits the screen.

The tests need the extra `docs`; the one in a browser also Chromium, as `chromium` on the PATH or as the command in the
environment variable `CHROMIUM`.
"""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Optional, Set, Tuple
from urllib.parse import unquote, urlsplit

import pytest
from support import ROOT

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
#: Pixels: two screens and a phone.
WIDTHS = (1440, 1280, 390)


class Page(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: Set[str] = set()
        self.targets: List[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, _tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        """Keep the anchor and the target of an element."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None:
                self.targets.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def texts(site: Path) -> Dict[str, str]:
    """The HTML of every page, by its path in the site."""
    paths = sorted(site.rglob("*.html"))
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_links_and_pictures_resolve(site: Path, texts: Dict[str, str]) -> None:
    pages = {(site / name).resolve(): Page(site / name) for name in texts}
    broken, count = [], 0
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin with that of the site, which is not known
            continue
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme or link.netloc:
                continue
            count += 1
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            file = file / "index.html" if file.is_dir() else file
            has_anchor = not link.fragment or file not in pages or unquote(link.fragment) in pages[file].anchors
            if not file.is_file() or not has_anchor:
                broken.append(f"{path.relative_to(site.resolve())}: {target}")
    assert len(pages) > 30
    assert count > 1000
    assert not broken


def test_the_theme_has_the_colors(site: Path, texts: Dict[str, str]) -> None:
    """The theme's default takes the place of a color that it does not have."""
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("palette*.css"))
    named = set(re.findall(r'<input[^>]* data-md-color-primary="([^"]*)"', texts["index.html"]))
    assert named
    assert all(f"[data-md-color-primary={name}]" in styles for name in named), named


def test_examples_of_docstrings_are_code(texts: Dict[str, str]) -> None:
    """Sections `Examples:` are; one with another name becomes running text."""
    prompt = r'<span class="gp">&gt;&gt;&gt; </span>'
    assert all(prompt in texts[f"api/{name}.html"] for name in ("pipeline", "calibration"))
    for name, text in texts.items():
        outside = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert '<details class="example"' not in outside, name
        assert "&gt;&gt;&gt;" not in outside, name


def test_drawings_have_colors_for_dark_mode(site: Path) -> None:
    """A drawing follows the page's `color-scheme`."""
    drawings = [path.read_text(encoding="utf-8") for path in (site / "images").glob("*.svg")]
    assert len(drawings) >= 2
    assert all("@media (prefers-color-scheme: dark)" in text for text in drawings)


def test_pages_fit_the_screen(site: Path, texts: Dict[str, str]) -> None:
    """No page scrolls to the side, no code and no picture is cut, no word is broken."""
    command = shlex.split(os.environ.get("CHROMIUM", "")) or [path for path in map(shutil.which, BROWSERS) if path][:1]
    if not command:
        pytest.skip("no Chromium")
    pages = [f"site/{name}" for name in texts if name != "404.html"]
    script = (ROOT / "test" / "helpers" / "site_widths.js").read_text(encoding="utf-8")
    check = site.parent / "check.html"
    check.write_text(
        f"<!doctype html><meta charset=utf-8><body><script>const PAGES = {json.dumps(pages)}, "
        f"WIDTHS = {json.dumps(WIDTHS)};\n{script}</script>",
        encoding="utf-8",
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"]
    options += ["--window-size=1500,1000", "--virtual-time-budget=600000", "--dump-dom", check.as_uri()]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=240)
    report = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert report, done.stderr
    results = json.loads(html.unescape(report[1]))
    assert results["pages"] == len(pages) * len(WIDTHS)
    assert not results["found"], "\n".join(results["found"])
