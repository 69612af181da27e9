"""MkDocs hook: documents from outside `docs/`, the help of the command line and pictures, on the site (`make docs`).

The site has the folders of the repository, except that the files of `docs/` are at the top, and `README.md` is the
start page. Links in the documents are those of the repository; this hook rewrites them for the site, where the page
of a notebook is made from its cells.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any, List

import tutorial  # beside this file, as is `pictures`
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from pictures import PICTURES, painted

from polar_pipeline.options import OPTIONS

ROOT = Path(__file__).resolve().parent.parent
#: Documents outside `docs/` that are pages.
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "kernels/README.md", "frames/README.md")
_LINK = re.compile(r"(\]\()([^)#\s]+)")
_SCRIPT = re.compile(r'<script src="([^"]+)"')
_PICTURE = re.compile(r"^<!-- picture: (\S+) -->$", re.MULTILINE)
#: Folder of the site that painted pictures are in.
_IMAGES = "images"
#: Inline code; code blocks start with an empty element.
_CODE = re.compile(r"(?<!<span></span>)<code>([^<\n]+)</code>")
#: Longest inline code that stays in one line: it fits the page of a phone.
_SHORT = 40
#: Place in longer inline code where a line may end.
_MARK = re.compile(r"(?<=[/.=])(?=\w)")
_BLOCK = re.compile(r"<pre>.*?</pre>", re.DOTALL)
#: A word with a hyphen in the text of a code block, as `--products`; browsers break lines after hyphens.
_HYPHENATED = re.compile(rf"(?<![\w-])(?=[\w-]{{1,{_SHORT}}}(?![\w-]))[\w-]*-[\w-]+(?=[^<>]*<)")
_COMMAND = re.compile(r"^ {4}([a-z]+)(?: |$)", re.MULTILINE)


def site_path(path: str) -> str:
    """Where a file of the repository is in the site; both relative, with slashes."""
    if path == "README.md":
        return "index.md"
    path = path.replace(".ipynb", ".md")
    return path[len("docs/") :] if path.startswith("docs/") else path


def repository_path(path: str) -> str:
    """The inverse of `site_path`."""
    if path == "index.md":
        return "README.md"
    return path if (ROOT / path).exists() else f"docs/{path}"


def linked_files(page: str) -> List[str]:
    """Files of the repository that a page links to, as paths from the repository's root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target for _, target in _LINK.findall(text) if "://" not in target]
    paths = [posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets]
    return [path for path in paths if (ROOT / path).is_file()]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside `docs/`, the files outside it that pages link to, the tutorial, and the pictures."""
    pages = [*PAGES, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
    outside = {path for page in pages for path in linked_files(page) if not path.startswith("docs/")}
    for path in sorted({*PAGES, *outside}):
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    page, shown = tutorial.markdown()
    files.append(File.generated(config, "tutorial.md", content=page))
    for name, data in {**painted(), **shown}.items():
        files.append(File.generated(config, f"{_IMAGES}/{name}", content=data))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite a page's links from the repository's folders to those of the site; fill in help texts and pictures."""
    here = page.file.src_uri
    folder = posixpath.dirname(repository_path(here))

    def rewritten(match: Any) -> str:
        target = match.group(2)
        if "://" in target:
            return str(match.group(0))
        path = site_path(posixpath.normpath(posixpath.join(folder, target)))
        return f"{match.group(1)}{posixpath.relpath(path, posixpath.dirname(here) or '.')}"

    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", commands())
    if "<!-- options -->" in markdown:
        markdown = markdown.replace("<!-- options -->", options())

    def shown(match: Any) -> str:
        name = match.group(1)
        path = posixpath.relpath(f"{_IMAGES}/{name}", posixpath.dirname(here) or ".")
        return f"![{PICTURES[name].alt}]({path})\n\n*{PICTURES[name].caption}*"

    return _PICTURE.sub(shown, _LINK.sub(rewritten, markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Let code break lines only at good places.

    Short inline code and hyphenated words of code blocks become `short`, which site.css keeps in one line. Longer
    inline code may break after slashes, dots and equals signs.
    """

    def breakable(match: Any) -> str:
        text = match.group(1)
        if len(unescape(text)) <= _SHORT:
            return f'<code class="short">{text}</code>'
        return f"<code>{_MARK.sub('<wbr>', text)}</code>"

    def unbroken(block: Any) -> str:
        return _HYPHENATED.sub(r'<span class="short">\g<0></span>', block.group(0))

    return _BLOCK.sub(unbroken, _CODE.sub(breakable, html))


def on_post_build(config: Any) -> None:
    """Check that the site can be searched from the disk and holds no compiled Python.

    Raises:
        PluginError: It cannot, or it does.
    """
    site = Path(config.site_dir)
    loaded = {source for page in site.rglob("*.html") for source in _SCRIPT.findall(page.read_text(encoding="utf-8"))}
    remote = sorted(source for source in loaded if "://" in source)
    if remote or not any("iframe-worker" in source for source in loaded):
        raise PluginError(f"pages opened from the disk would have no search; they load {remote or sorted(loaded)}")
    if list(site.rglob("*.pyc")):
        raise PluginError("the site has compiled Python; exclude_docs in mkdocs.yml")


def commands() -> str:
    """The help of every command of `polar-pipeline`, as Markdown."""
    parts = [f"```text\n{help_of()}\n```"]
    for name in listed(help_of()):
        parts.append(f"## {name}\n\n```text\n{help_of(name)}\n```")
        parts += [f"### {name} {sub}\n\n```text\n{help_of(name, sub)}\n```" for sub in listed(help_of(name))]
    return "\n\n".join(parts)


def options() -> str:
    """The arguments of `Pipeline`, as Markdown."""
    return "\n".join(f"- `{row.name}` = `{row.default!r}`: {row.text} {row.note}" for row in OPTIONS.values())


def listed(text: str) -> List[str]:
    """The commands that a help text lists."""
    return _COMMAND.findall(text) if "COMMAND" in text else []


def help_of(*command: str) -> str:
    """What `polar-pipeline COMMAND --help-all` prints.

    Raises:
        PluginError: It fails.
    """
    words = [sys.executable, "-m", "polar_pipeline", *command, "--help-all"]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PluginError(f"polar-pipeline {' '.join(command)} --help-all failed: {done.stderr.strip()}")
    return done.stdout.strip()
