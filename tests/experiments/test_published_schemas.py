"""Each corpus of `configs/corpus` reads files with the fields of the published data set."""

import dataclasses

import pytest

from experiments.compose import load
from experiments.config import part
from tests.properties import quick_first
from tests.tokenizer.corpus.corpora import write_jsonl, write_parquet
from tokenizer import Corpus, CorpusConfig
from tokenizer.corpus.origins import documents_by_origin

WEB = {"id": "<urn:uuid:1>", "dump": "CC-MAIN-2024-10", "date": "2024-02-21T05:00:00Z", "language": "en"}
WEB |= {"token_count": 9, "file_path": "s3://commoncrawl/x.warc.gz"}
SCHEMAS = {
    "dclm_baseline": {
        "bff_contained_ngram_count_before_dedupe": 1,
        "language_id_whole_page_fasttext": {"en": 0.97},
        "metadata": {"Content-Length": "9", "WARC-Type": "response"},
        "previous_word_count": 9,
        "text": "a page of DCLM",
        "url": "https://Example.org/page",
        "warcinfo": "software: Apache Nutch",
        "fasttext_openhermes_reddit_eli5_vs_rw_v2_bigram_200k_train_prob": 0.02,
    },
    "dclm_edu": {
        "id": "1",
        "text": "a lesson of DCLM",
        "metadata": {"edu_int_score": 3, "edu_score": 2.9, "fasttext_score": 0.1, "language": "en", "url": "x"},
    },
    "fineweb_edu": {
        **WEB,
        "text": "a lesson of FineWeb",
        "url": "https://example.org/lesson",
        "language_score": 0.98,
        "score": 2.8,
        "int_score": 3,
    },
    "finepdfs": {
        **WEB,
        "text": "a document of FinePDFs",
        "url": "https://example.org/document.pdf",
        "offset": 12,
        "page_average_lid": "eng_Latn",
        "page_average_lid_score": 0.9,
        "full_doc_lid": "eng_Latn",
        "full_doc_lid_score": 0.9,
        "per_page_languages": ["eng_Latn"],
        "is_truncated": False,
        "extractor": "docling",
        "page_ends": [22],
    },
    "starcoder": {
        "max_stars_repo_path": "a.py",
        "max_stars_repo_name": "owner/name",
        "max_stars_count": 1,
        "id": "0",
        "content": "print('code')\n",
    },
}
LOW = {"dclm_edu": {"metadata": {"edu_score": 1.0}}, "fineweb_edu": {"score": 1.0}}


@pytest.mark.parametrize("name", quick_first(SCHEMAS, 2))
def test_a_file_of_the_published_schema_is_read(name, tmp_path):
    record = SCHEMAS[name]
    text = record.get("text") or record["content"]
    rows = [record, {**record, **LOW[name]}] if name in LOW else [record]
    write, path = (write_jsonl, "a.jsonl.zst") if name == "dclm_baseline" else (write_parquet, "a.parquet")
    write(tmp_path / path, rows)
    config = part(CorpusConfig, load([f"corpus={name}", f"corpus.paths=[{tmp_path}]"]).corpus)
    corpus = Corpus(dataclasses.replace(config, heldout_fraction=0.0, heldout_near_duplicates=False))
    source = "example.org" if "url" in record else path
    assert list(documents_by_origin(corpus, "all")) == [(source, text)]
