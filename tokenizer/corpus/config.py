"""Settings of a corpus: what is read, which documents are used, and which are held out."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from tokenizer.errors import UserError, quoted
from tokenizer.fields import check_fields, declare
from tokenizer.files import shown, weighted

MAX_WEIGHT = 1_000_000
"""Limit of a source's weight as a whole number, as in phase 2 (`_native.SuperwordTrainer.MAX_WEIGHT`)."""
FORMATS = ("txt", "jsonl", "parquet", "csv", "json", "arrow")
READING = ("format", "field", "separator", "cache", "on_invalid_utf8", "on_error")
"""Settings that say how documents are read, which are options of commands, too."""


@dataclass(frozen=True)
class CorpusConfig:
    r"""Sources of documents, how they are read, and which of them are used and held out.

    Attributes:
        paths: files, directories (searched recursively) and globs; on this machine, or as s3://, gs://,
            hf://datasets/… and https:// URLs (of single files).
        sources: named parts of the text, instead of `paths`: name to PATH, or PATH:3 to count every document three
            times when tokenizers are trained. Language models read every document once, whatever its weight. Decimal
            weights are exact, not rounded: all weights are multiplied by what makes them whole, as are the counts.
        format: txt, jsonl, parquet, csv, json (one array of records) or arrow (a file of a dataset that `save_to_disk`
            wrote; a path may name its folder); None to infer it from each file's name.
        field: field of a record that holds the text; a dotted path for nested fields.
        separator: string between documents in .txt files (\n and \t are accepted as escapes); None for one document
            per file.
        dataset: a Hugging Face dataset to stream instead of paths: hub name or local path.
        dataset_config, dataset_split: configuration and split of the dataset.
        source_field: field (dotted) with the source of a record's document; None to use the file name. It does not
            change documents; held-out loss is reported per source (see `tokenizer.corpus.origins`).
        kind_field: field (dotted) with the kind of text of a record's document, such as its language.
        kinds: kind of text to the path of its files (a file, a folder or a glob, as in `paths`); other files are of the
            kind `other`. Without `kinds` and `kind_field`, the kind is the start of a source such as `code: numpy`.
        cache: folder that keeps what is read of remote files, as stored, so that later passes and runs do not fetch it;
            None for none. It is never emptied.
        on_invalid_utf8: "error", or "replace" (malformed bytes become U+FFFD).
        on_error: "error", or "skip" to leave out damaged files, lines and rows: truncated compression, malformed JSON,
            a missing field, a value of the wrong type, malformed UTF-8 (unless it is replaced). `Corpus.skipped` lists
            them and, whatever the setting, records whose text is null; every pass ends with a warning. A damaged file
            is read up to the damage.
        batch_bytes: text per batch, in bytes.
        document_limit_bytes: a longer document is an error, unless `max_document_bytes` skips it. Documents are kept
            in memory as a whole, at several times their size, and a small compressed file can hold any amount of
            text. For JSON lines the limit applies to the line.
        sample: fraction of documents to keep, chosen by a hash of their text, independent of their position. All
            held-out documents are kept; see `heldout_sample`.
        sample_salt: changes which documents are sampled.
        max_bytes: budget of text in bytes, applied in document order before the held-out split and the sample; the
            document that reaches it is the last one. With files in several languages it keeps only the first ones; use
            `sample` to keep some of each.
        min_document_bytes, max_document_bytes: shorter and longer documents are skipped.
        score_field, min_score: documents whose number in this field (dotted) is missing or lower are skipped.
        heldout_fraction: fraction of documents held out, chosen by a hash of their text.
        heldout_salt: changes which documents are held out.
        heldout_near_duplicates: choose held-out documents by the smallest hash of their sequences of five words, so
            that near-duplicates are on the same side of the split: two documents are on the same side with at least the
            probability of their Jaccard similarity (MinHash; Broder, 1997). Documents that share a long header are
            mostly on one side, so the share held out may differ much from `heldout_fraction`: check it.
        heldout_paths: files of held-out documents; `heldout_fraction` is then ignored.
        heldout_sample: fraction of the held-out documents that are read, chosen by a hash of their text. The others are
            not used at all, so this does not change the training text.
    """

    paths: list[str] = declare(factory=list, help="files, directories (searched recursively) and globs")
    sources: dict[str, str] = declare(
        factory=dict,
        help="named parts of the text: NAME to PATH, or PATH:3 to count documents three times in training",
    )
    format: str | None = declare(None, choices=(None, *FORMATS))
    field: str = "text"
    separator: str | None = None
    dataset: str | None = declare(
        None, help="a Hugging Face dataset to stream instead of paths: hub name or local path"
    )
    dataset_config: str | None = None
    dataset_split: str = "train"
    source_field: str | None = None
    kind_field: str | None = None
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    cache: str | None = declare(None, help="folder that keeps what is read of URLs, so that it is fetched once")
    on_invalid_utf8: str = declare("error", choices=("error", "replace"))
    on_error: str = declare("error", choices=("error", "skip"))
    batch_bytes: int = declare(1 << 22, least=1)
    document_limit_bytes: int = declare(1 << 30, least=1)
    sample: float = declare(
        1.0,
        above=0,
        most=1,
        help="fraction of documents to keep, chosen by a hash of their text, independent of their position",
    )
    sample_salt: str = ""
    max_bytes: int | None = declare(None, least=1)
    min_document_bytes: int = declare(1, least=0)
    max_document_bytes: int | None = declare(None, least=0)
    score_field: str | None = None
    min_score: float | None = None
    heldout_fraction: float = declare(
        0.0, least=0, below=1, help="fraction of documents held out, chosen by a hash of their text"
    )
    heldout_salt: str = ""
    heldout_near_duplicates: bool = False
    heldout_paths: list[str] = dataclasses.field(default_factory=list)
    heldout_sample: float = declare(1.0, above=0, most=1)

    @property
    def all_paths(self) -> list[str]:
        """`paths`, or the paths of `sources` without weights."""
        return self.paths or [weighted(entry, f"sources.{name}")[0] for name, entry in self.sources.items()]

    @property
    def weights(self) -> dict[str, int]:
        """Weights of `sources` as whole numbers, multiplied by the least number that makes them whole."""
        exact = {name: weighted(entry, f"sources.{name}")[1] for name, entry in self.sources.items()}
        scale = math.lcm(*(weight.denominator for weight in exact.values()))
        return {name: int(weight * scale) for name, weight in exact.items()}

    @property
    def places(self) -> list[str]:
        """All paths as they may be shown."""
        return [shown(path) for path in self.all_paths]

    @property
    def skip_above(self) -> int | None:
        """`max_document_bytes`; None if it is above `document_limit_bytes`, where long documents are an error."""
        longest = self.max_document_bytes
        return None if longest is None or longest > self.document_limit_bytes else longest

    def check(self, prefix: str = "") -> None:
        """Check the values, without looking at any file.

        Raises:
            UserError: a value is out of range, or two contradict each other.
        """
        check_fields(self, prefix)
        if self.kinds and self.kind_field is not None:
            raise UserError(f"kinds and kind_field={self.kind_field} both say the kind of a document; remove one")
        if self.sources and self.max_bytes is not None:
            raise UserError("max_bytes keeps the beginning of the text, which may be one of sources only; use sample")
        for name, weight in self.weights.items():
            if weight > MAX_WEIGHT:
                raise UserError(
                    f"sources.{name} has {quoted(self.sources[name])}, whose weight is {weight:,} when all are whole "
                    f"numbers, above {MAX_WEIGHT:,}; use weights that differ less, with fewer digits"
                )
        if (self.score_field is None) != (self.min_score is None):
            raise UserError("score_field and min_score go together; give both or neither")
        if self.heldout_near_duplicates and self.heldout_paths:
            raise UserError(
                "heldout_near_duplicates=true has no effect on held-out files (heldout_paths, or the embedded corpus); "
                "set it to false"
            )
