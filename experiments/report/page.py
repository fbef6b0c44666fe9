"""Pages that open offline: one HTML file each, with a common design.

A page is a template that extends `base.html` (fonts, colours, light and dark, print), with its numbers and its
`figures.Figure`s. Names and tokens are untrusted text: everything is autoescaped, and control and bidirectional
characters are shown as visible text, so that they can neither hide nor reorder what follows them.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
import re
from typing import TYPE_CHECKING, Any

import jinja2
import vl_convert
from markupsafe import Markup

from experiments.characters import harmless, visible
from experiments.numbers import duration, percent, si, signed
from experiments.report.figures import PAPER, PAPER_WIDTH, PNG_SCALE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.report.figures import Figure

_PACKAGE = "experiments.report"
SHARED = ("base.html", "macros.html", "style.css", "page.js", "page.py", "figures.py")
"""Files of this package that render every page; `experiments/characters.py` does, too."""


def render(
    template: str,
    *,
    title: str,
    figures: Sequence[Figure] = (),
    packed: Mapping[str, str] | None = None,
    **values: Any,
) -> str:
    """Return a page.

    Args:
        template: File of this package that extends `base.html`; it places each figure with the macro `chart`.
        title: Title of the page.
        figures: Charts of the page; the template finds them by name in `figures`.
        packed: Large data by name, packed with `packing.pack`; the template places it.
        values: Other variables of the template.
    """
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            figures={figure.name: figure for figure in figures},
            charts=script_json(
                {
                    "specs": {f.name: f.spec for f in figures},
                    "paper": {"config": PAPER, "width": PAPER_WIDTH, "scale": PNG_SCALE},
                }
            ),
            library=Markup(_library()) if figures else "",  # noqa: S704  (our own bundle)
            packed={name: Markup(data) for name, data in (packed or {}).items()},  # noqa: S704  (base64)
            **values,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        si=si,
        duration=duration,
        percent=percent,
        signed=signed,
        thousands=lambda value: f"{value:,}",
        csp_hash=_csp_hash,
        visible=visible,
        prose=lambda text: re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text),
        flow=lambda text: visible(text).replace("↵", "↵\n"),
    )
    environment.globals["asset"] = lambda name: Markup(_read(name))  # noqa: S704  (our own file)
    return environment


def version(*files: str) -> str:
    """Return a hash of `SHARED` and these files, so that a report is rendered again when its design changes."""
    package, ground = importlib.resources.files(_PACKAGE), importlib.resources.files("experiments")
    sources = [ground / "characters.py", *(package / file for file in (*SHARED, *files))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _shown(value: Any) -> Any:
    """Text that a template prints for a value."""
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def script_json(value: Any) -> Markup:
    """Return JSON that cannot close the script element that contains it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704  (escaped)


def _csp_hash(script: str) -> Markup:
    """Return the source expression that allows this script in a Content-Security-Policy."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704  (base64)


def _read(name: str) -> str:
    return (importlib.resources.files(_PACKAGE) / name).read_text(encoding="utf-8")


@functools.cache  # takes a second or two
def _library() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Wrapped in a function, because the bundle's top-level names are single letters.
    return "(() => {" + bundle.replace("</script", "<\\/script") + "})();"
