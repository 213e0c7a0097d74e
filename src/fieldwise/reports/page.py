"""Builds a self-contained HTML page: charting libraries, data as JSON, styles and scripts. No network access."""

import html
import json
import re
from importlib import resources
from typing import Any, Final

from fieldwise.core.version import __version__

LIBRARIES: Final = {
    "d3": ("d3.min.js", "D3 7.9.2, ISC license"),
    "plot": ("plot.umd.min.js", "Observable Plot 0.6.17, ISC license"),
}
"""Embedded in every page, each with its license; unchanged from the npm packages d3 and @observablehq/plot."""
SCRIPTS: Final = {
    "run": ("charts.js", "run_search.js", "run_results.js"),
    "comparison": ("charts.js", "comparison.js"),
}


def page(data: dict[str, Any]) -> str:
    """Returns the HTML page for the data of a run or a comparison."""
    made = f"fieldwise {__version__}; charts by {' and '.join(what for _, what in LIBRARIES.values())}"
    parts = {
        "TITLE": html.escape(str(data["title"])),
        "STYLE": _asset("page.css"),
        "LIBRARIES": "\n".join(
            f"<script>/*\n{_vendored(f'{name}.LICENSE')}*/\n{_vendored(file)}</script>"
            for name, (file, _) in LIBRARIES.items()
        ),
        "DATA": embedded({**data, "made": made}),
        "SCRIPTS": "\n".join(f"<script>{_asset(name)}</script>" for name in SCRIPTS[str(data["kind"])]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def embedded(value: Any) -> str:
    """Returns JSON that is safe inside a script element, whatever its strings contain."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign, escape in {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }.items():
        text = text.replace(sign, escape)
    return text


def _asset(name: str) -> str:
    return (resources.files("fieldwise.reports") / "assets" / name).read_text(encoding="utf-8")


def _vendored(name: str) -> str:
    return (resources.files("fieldwise.reports") / "vendor" / name).read_text(encoding="utf-8")
