"""Runs docs/tutorial.ipynb without Jupyter, and stores what its cells show: `python docs/tutorial.py`.

The site's page of the tutorial is made from the notebook (`markdown`), with the stored outputs.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, NamedTuple, Tuple

NOTEBOOK = Path(__file__).resolve().parent / "tutorial.ipynb"


class Image(NamedTuple):
    """Stands in for `IPython.display.Image`: a picture to show, as the bytes of a JPEG file."""

    data: bytes
    format: str = "jpeg"


def load() -> Dict[str, Any]:
    """Read the notebook."""
    document: Dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return document


def execute(document: Dict[str, Any]) -> None:
    """Run the cells of code in order, in the notebook's folder, and replace their outputs.

    The value of a last expression is shown, as Jupyter does.
    """
    package, display = ModuleType("IPython"), ModuleType("IPython.display")
    display.Image = Image  # type: ignore[attr-defined]
    sys.modules.update({"IPython": package, "IPython.display": display})
    os.chdir(NOTEBOOK.parent)
    names: Dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        code = ast.parse("".join(cell["source"]), f"cell {number}")
        last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
        exec(compile(code, f"cell {number}", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None
        cell["execution_count"] = number
        cell["outputs"] = [] if value is None else [_output(value, number)]


def _output(value: Any, number: int) -> Dict[str, Any]:
    """Return a shown value in the notebook's format."""
    data: Dict[str, Any] = {"text/plain": [repr(value)]}
    if isinstance(value, Image):
        data = {
            "image/jpeg": base64.b64encode(value.data).decode(),
            "text/plain": ["<IPython.core.display.Image object>"],
        }
    return {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}


def markdown() -> Tuple[str, Dict[str, bytes]]:
    """Return the notebook as Markdown, and its pictures by the names that the Markdown gives them in `images`."""
    parts: List[str] = []
    pictures: Dict[str, bytes] = {}
    for cell in load()["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            if "image/jpeg" in output["data"]:
                name = f"tutorial_{len(pictures) + 1}.jpg"
                pictures[name] = base64.b64decode(output["data"]["image/jpeg"])
                parts.append(f"![What the code above shows](images/{name})")
            else:
                parts.append(f"```text\n{''.join(output['data']['text/plain'])}\n```")
    return "\n\n".join(parts) + "\n", pictures


if __name__ == "__main__":
    notebook = load()
    execute(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
