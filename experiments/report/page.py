"""The report as one HTML file that opens without a network."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from experiments.console import duration, si
from experiments.report import charts


def render(report: dict[str, Any]) -> str:
    """Return the page for the numbers of `report.json` (see `experiments.report.data`).

    Tokens are whatever strangers wrote into a corpus: everything passes through autoescape, and the JSON in a
    script element cannot close it.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        si=si,
        duration=duration,
        thousands=lambda value: f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"),
        visible=visible,
        flow=lambda text: visible(text).replace("↵", "↵\n"),
    )
    return environment.get_template("page.html").render(
        report=report,
        charts=_script_json(_charts(report)),
        library=Markup(_library()),  # noqa: S704  (our own bundle)
    )


def version() -> str:
    """Return a hash of what draws the page: a report is made anew when its looks change."""
    files = ("page.html", "page.py", "charts.py", "data.py")
    package = importlib.resources.files("experiments.report")
    return hashlib.sha256(b"".join((package / file).read_bytes() for file in files)).hexdigest()


def visible(text: str) -> str:
    r"""Return a token with its line breaks, tabs and other control characters made visible.

    >>> visible(" a\n\tb\x00")
    ' a↵⇥b␀'
    """
    shown = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡"}
    return "".join(shown.get(c, chr(0x2400 + ord(c)) if ord(c) < 32 else c) for c in text)


def _charts(report: dict[str, Any]) -> dict[str, Any]:
    labels = [row["label"] for row in report["tokenizers"]]
    transitions = [
        {"tokenizer": row["label"], "vocab_size": row["transition"]}
        for row in report["tokenizers"]
        if row["transition"]
    ]
    specs = {
        "compression": charts.compression(report["compression"], labels, transitions),
        "loss": charts.loss(report["loss"], labels),
    }
    if report["verdict"]["low"] is not None:
        rows = [
            {"tokenizer": r["label"], **{k: r[k] for k in ("bits_per_byte", "low", "high")}}
            for r in report["tokenizers"]
        ]
        specs["interval"] = charts.interval(rows, labels)
    if report["superwords"]["by_words"]:
        specs["words"] = charts.words(report["superwords"]["by_words"])
    return specs


def _template(name: str) -> str:
    return (importlib.resources.files("experiments.report") / name).read_text(encoding="utf-8")


def _library() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A function of its own: the bundle's top-level names are one letter long.
    return "(() => {" + bundle.replace("</script", "<\\/script") + "})();"


def _script_json(value: Any) -> Markup:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704  (escaped)
