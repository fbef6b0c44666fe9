"""Every page with hostile text, and with long names on a phone."""

import functools
import re

import pytest

from experiments.characters import harmless
from tests.browser.pages import PAGES
from tests.browser.waiting import show_all
from tests.experiments.report.elements import Elements

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`&amp;${alert(3)}\u2028\u202e\x00\x1b\x85 z"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ARMS = [
    "BPE vocab_size=131,072",
    "SuperBPE transition=0.8 max_words=4",
    "SuperBPE transition=0.9 max_words=4",
    "SuperBPE preset=runs max_words=3",
    "bytes without any merges at all",
    "meta-llama/Llama-3.1-8B-Instruct",
]


@pytest.fixture(scope="module")
def written(tmp_path_factory, trained):

    @functools.cache
    def write(name, kind):
        """The file of a page whose names and texts are hostile, long or plain."""
        file = tmp_path_factory.mktemp(kind) / f"{name}.html"
        arms = {"hostile": [f"{i} {HOSTILE}" for i in range(3)], "plain": ["a", "b", "c"], "long": ARMS}[kind]
        PAGES[name](file, arms, (lambda text: text + HOSTILE) if kind == "hostile" else str, trained)
        return file

    return write


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_stays_text(written, name):
    hostile, plain = (Elements(written(name, kind).read_text(encoding="utf-8")) for kind in ("hostile", "plain"))
    # Text decides the number of rows, but adds no kind of element.
    assert set(hostile.tags) <= set(plain.tags)
    assert hostile.tags.count("script") == plain.tags.count("script")
    assert not hostile.handlers
    assert not CONTROLS.search(hostile.text)
    assert harmless(HOSTILE) in hostile.text
    assert hostile.json


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_does_nothing_in_the_browser(opened, written, name):
    dialogs = []
    opened.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page = opened.open(written(name, "hostile"))
    if name == "vocabulary":
        page.wait_for_selector("html[data-ready=true]")
        page.fill("#query", "e")
        page.locator("#results button").first.click()
        page.fill("#field", HOSTILE)
    show_all(page)
    marks = page.locator(".chart svg .mark-symbol path")
    if marks.count():
        marks.first.hover(force=True)  # shows a tooltip with names
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed').length") == 0
    scripts = page.evaluate("[...document.querySelectorAll('script')].map((script) => script.textContent)")
    assert not any(script.startswith("alert") for script in scripts)
    shown = page.evaluate(
        "document.body.innerText + [...document.querySelectorAll('svg')].map((svg) => svg.textContent).join()"
    )
    assert "<img src=x onerror=alert(2)>" in shown
    assert not CONTROLS.search(shown)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert not dialogs
    opened.check()


BROKEN = """() => {
  const broken = [], labels =
    "h1, h2, h3, th, summary, dt, figcaption, .arm, .tile span, .sentence, .chip, .contents a, .note";
  for (const label of document.querySelectorAll(labels)) {
    const walker = document.createTreeWalker(label, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      // Browsers break lines after hyphens and slashes.
      for (const { 0: word, index } of node.data.matchAll(/[^\\s\\-–−/|…]+/g)) {
        const range = document.createRange();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(word);
      }
    }
  }
  return broken;
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_whole_words_and_the_key_number(opened, written, name):
    opened.page.set_viewport_size({"width": 390, "height": 844})
    page = opened.open(written(name, "long"))
    if name == "vocabulary":
        page.wait_for_selector("html[data-ready=true]")
    show_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    number = page.locator(".verdict p:visible" if name == "comparison" else ".verdict .sentence:visible").first
    text = number.inner_text()
    for arm in ARMS:
        text = text.replace(arm, "")
    assert re.search(r"\d\.\d", text)
    box = number.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 844
    assert page.evaluate(BROKEN) == []
    cut = "[...document.querySelectorAll('.chart svg text')].map((text) => text.textContent)"
    assert [text for text in page.evaluate(cut) if "…" in text] == []
    outside = """() => [...document.querySelectorAll('.chart svg')].flatMap((svg) => [...svg.querySelectorAll('text')]
      .filter((text) => text.getBoundingClientRect().right > svg.getBoundingClientRect().right + 1)
      .map((text) => text.textContent))"""
    assert page.evaluate(outside) == []
    assert page.locator("nav.contents a").count() == page.locator("main h2").count()
    if name == "comparison":
        assert page.locator(".scroll").get_by_text("1.7020").first.is_visible()
    clipped = "(box) => [...box.querySelectorAll('td')].some((cell) => cell.scrollWidth > cell.clientWidth + 1)"
    assert not any(page.locator(".scroll").evaluate_all(f"(boxes) => boxes.map({clipped})"))
    scrolled = "(boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.innerText)"
    assert page.locator(".scroll, .list").evaluate_all(scrolled) == []
    opened.check()
    # Every arm has a place in every section.
    arms = ARMS[:4] if name == "ladder" else ARMS
    general = ("How it is measured", "How it is computed", "Provenance", "Segment a text")
    for section in page.locator("section:has(h2), footer:has(h2)").all():
        topic = section.locator("h2").first.inner_text()
        text = "".join(section.evaluate("(part) => part.textContent").split())  # labels of charts have several lines
        if topic not in general:
            missing = [arm for arm in arms if "".join(arm.split()) not in text]
            assert not missing or "Notshown" in text or f"all{len(arms)}tokenizers" in text, (topic, missing)
