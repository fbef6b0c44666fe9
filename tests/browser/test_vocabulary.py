"""The vocabulary page in a browser: search, details, live segmentation, rejections, and no external resources."""

import json
from dataclasses import replace

import pytest

from experiments.cli import main
from experiments.report import vocabulary, vocabulary_page
from superbpe.inspection import tokens
from tests import texts
from tests.browser.waiting import wait_for
from tokenizer import Tokenizer, patterns

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory, trained):
    """The report of a superword tokenizer against two plain ones, made by the command."""
    root = tmp_path_factory.mktemp("vocabulary")
    for name in ("superwords", "gpt2", "llama3"):
        trained[name].save(root / name)
    hostile = "</script><script>alert(1)</script> of the <b>\ud7ff\U0001f642 x\x00y"
    documents = [*texts.english()[1], hostile]
    text = root / "text.jsonl"
    text.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents), encoding="utf-8")
    superwords, *others = (str(root / name) for name in ("superwords", "gpt2", "llama3"))
    assert main.run(["inspect", superwords, "--against", *others, "--text", str(text), "--out", str(root / "out")]) == 0
    return root / "out"


@pytest.fixture
def page(opened, folder):
    page = opened.open(folder / "vocabulary.html")
    page.wait_for_selector("html[data-ready=true]")
    yield page
    opened.check()


def test_pasted_text_is_segmented_as_in_python(page, trained):
    for text in (texts.english()[1][1][:1500], texts.generated(300, 60), "of the", ""):
        page.fill("#field", text)
        # A text field turns every line end into a line feed.
        given = page.evaluate("document.getElementById('field').value")
        for side, name in enumerate(("superwords", "gpt2", "llama3")):
            ids = trained[name].encode_ordinary(given)
            pieces = f".pane[data-side='{side}'] .text i"
            wait_for(page, "([pieces, n]) => document.querySelectorAll(pieces).length === n", arg=[pieces, len(ids)])
            shown = page.locator(pieces)
            assert shown.evaluate_all("all => all.map((i) => Number(i.title.slice(3)))") == ids
            tally = page.locator(f".pane[data-side='{side}'] .tally").text_content()
            assert tally.replace("\u202f", "").startswith(f"{len(ids)} tokens")


def test_search_and_details_show_what_python_finds(page, trained):
    about = tokens.describe(trained["superwords"])

    def found(query, only=""):
        page.fill("#query", query)
        page.select_option("#only", only)
        return int(page.locator("#found").text_content().split(" token")[0].replace("\u202f", ""))

    for query in (" the", "the", "e", "zzzzz", "\\x"):
        assert found(query) == sum(query in text.lower() for text in about.text), query
    assert found("The") == sum("The" in text for text in about.text)
    assert found("#300") == 1
    assert found("/^ (of|in) the$/") == sum(text in (" of the", " in the") for text in about.text)
    assert found("", "superword") == about.superword.sum()
    assert found("", "partial") == about.partial.sum()
    assert found("", "missing 0") == tokens.missing(trained["superwords"], about, trained["gpt2"]).sum()
    assert found("", "missing 1") == tokens.missing(trained["superwords"], about, trained["llama3"]).sum()
    assert found("", "group") == sum(map(len, tokens.near_duplicates(about)))
    page.fill("#query", "/(/")
    assert "Invalid regular expression" in page.locator("#found").text_content()
    # Details of a token.
    tokenizer = trained["superwords"]
    chosen = int(tokenizer.superword_ids()[0])
    assert found(f"#{chosen}") == 1
    page.locator("#results button").first.click()
    detail = page.locator("#detail")
    text = tokenizer.vocab[chosen].decode()
    assert detail.locator(".big .token").text_content() == text
    assert detail.locator("dd").first.text_content() == str(chosen)
    page.wait_for_selector("#detail .contexts mark")
    assert detail.locator(".contexts mark").first.text_content() == text
    row = next(row for row in tokenizer.merge_ids.tolist() if row[2] == chosen)
    roots = detail.locator(".tree > li > ul > li > button")
    assert [int(i) for i in roots.evaluate_all("all => all.map((b) => b.dataset.id)")] == row[:2]
    roots.first.click()
    assert detail.locator("dd").first.text_content() == str(row[0])


def test_split_words_and_residues_are_searched_and_shown_in_the_text(page, folder):
    report = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
    for name, key in (("split", "word"), ("residues", "text")):
        rows = report[name]["rows"]
        assert len(rows) > 20
        shown = page.locator(f"#{name}-rows tr")
        assert shown.count() == len(rows)
        for row, i in ((rows[0], 0), (rows[-1], len(rows) - 1)):
            around = shown.nth(i).locator(".around")
            assert around.locator("mark").text_content() == row[key].replace("\n", "↵").replace("\t", "⇥")
            assert around.text_content() == "".join([row["around"][0], row[key], row["around"][1]]).replace(
                "\n", "↵"
            ).replace("\t", "⇥")
        query = rows[7][key][-2:].lower()
        page.fill(f"#{name}-query", query)
        assert page.locator(f"#{name}-rows tr:visible").count() == sum(query in row[key].lower() for row in rows)
        page.fill(f"#{name}-query", "")
    # A token of a split opens its details; one that occurs only inside others is marked inside these.
    page.select_option("#only", "residue")
    assert page.locator("#found").text_content().startswith(str(report["residues"]["n"]))
    page.select_option("#only", "")
    row = next(row for row in report["residues"]["rows"] if row["count"] == 0 and row["text"].isalpha())
    page.locator(f"#residues-rows button[data-id='{row['id']}']").first.click()
    page.wait_for_selector("#detail .contexts mark")
    assert f"{row['inside']:,}, a residue; most in {row['host']['text']}" in page.locator("#detail dl").text_content()
    assert page.locator("#detail .contexts mark").first.text_content() == row["text"]
    shown = page.locator("#detail .contexts li").first.text_content()
    assert row["host"]["text"].strip() in shown


def test_tokens_are_shown_as_in_python(page):
    """Bytes outside UTF-8 are escapes: partial characters, surrogates, overlong forms, code points past the last."""
    cases = [character.encode() for character in "aé\u07ff\u0800\ud7ff\ue000\uffff\ufeff\U00010000\U0010ffff"]
    cases += [case[:-1] for case in cases] + [case[1:] for case in cases]
    cases += [b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80"]
    cases += [b"\xff", b"\xc3a"]
    cases += [b" x" + case + b"y" + case for case in cases]
    script = "(cases) => cases.map((bytes) => display(Uint8Array.from(bytes)))"
    expected = [case.decode("utf-8", "backslashreplace") for case in cases]
    assert page.evaluate(script, [list(case) for case in cases]) == expected


def test_a_pattern_that_cannot_run_shows_the_first_text_and_the_rest_works(opened, trained, tmp_path):
    custom = Tokenizer(replace(trained["gpt2"].definition, pattern=patterns.resolve(r"(\w)\1|\w+")))
    one = vocabulary.side("custom", "nowhere", custom, [], alpha=2.5)
    report = vocabulary.gather([one], None)
    path = tmp_path / "precomputed.html"
    path.write_text(vocabulary_page.render(report, [one]), encoding="utf-8")
    page = opened.open(path)
    page.wait_for_selector("html[data-ready=true]")
    shown = page.locator(".pane .text i").evaluate_all("all => all.map((i) => Number(i.title.slice(3)))")
    assert shown == custom.encode_ordinary(report["sample"])
    page.fill("#field", "another text")
    wait_for(page, "document.querySelector('.tally').textContent.startsWith('the browser does not cut')")
    assert page.locator("#results button").count() == 100
    page.locator("#results button").nth(99).click()
    assert page.locator("#detail dd").first.text_content() == "99"
    opened.check()
