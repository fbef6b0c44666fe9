"""What phase 2 may merge: units, fence, caps and vetoes; the named presets."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizer import patterns
from tokenizer.errors import UserError


@dataclass(frozen=True)
class Rules:
    """The rules of a superword phase.

    Attributes:
        unit: "document", or "line" (with its line feed): text inside which merges are counted. A training
            device: encoding knows only the fence.
        fence: pattern (name or regex) whose matches are isolated; no phase-2 merge crosses their ends. "none"
            fences nothing.
        phase1_fence: "lifted" (the fence alone cuts text, for phase-1 merges too: one-pass encoding, exact in HF
            files) or "kept" (phase-1 merges stay inside pretokens: two-pass encoding).
        max_words: most non-empty parts between spaces (0x20) in a new token.
        max_bytes: most bytes of a new token.
        forbid: strings that no new token may contain.
        min_count: pairs that occur less often are not merged.
        span_trigger, span_cap: a span between fences of more than `span_trigger` phase-1 tokens is cut every
            `span_cap` tokens. A training device.
        truncate_quantile: spans are truncated to this quantile of their lengths in phase-1 tokens. A training
            device, and the first to apply.
        sample: share of documents to train on, chosen by a hash of their text.
        sample_salt: another salt, another choice.
    """

    unit: str = "document"
    fence: str = "none"
    phase1_fence: str = "lifted"
    max_words: int | None = None
    max_bytes: int | None = None
    forbid: tuple[str, ...] = ()
    min_count: int = 1
    span_trigger: int | None = None
    span_cap: int = 10
    truncate_quantile: float | None = None
    sample: float = 1.0
    sample_salt: str = ""

    def check(self) -> None:
        """Refuses values that mean nothing.

        Raises:
            UserError: names the value and what it may be.
        """
        patterns.resolve(self.fence)
        if self.unit not in ("document", "line"):
            raise UserError(f"unit={self.unit!r}; it is one of: document, line")
        if self.phase1_fence not in ("lifted", "kept"):
            raise UserError(f"phase1_fence={self.phase1_fence!r}; it is one of: lifted, kept")
        for name, least in (
            ("max_words", 1),
            ("max_bytes", 2),
            ("span_trigger", 2),
            ("span_cap", 2),
            ("min_count", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name}={value} is not possible; use {least} or more")
        if self.truncate_quantile is not None and not 0.0 < self.truncate_quantile <= 1.0:
            raise UserError(f"truncate_quantile={self.truncate_quantile} is no share; use more than 0 and at most 1")
        if "" in self.forbid:
            raise UserError(f"forbid={self.forbid!r} holds an empty string, which every token contains; leave it out")
        if not 0.0 < self.sample <= 1.0:
            raise UserError(f"sample={self.sample} is no share of documents; use more than 0 and at most 1")


PRESETS: dict[str, Rules] = {
    # The released SuperBPE (PythonNut/superbpe, scripts/extend_tokenizer.sh of 2025-11, and the fork's trainer):
    # lines, digits and punctuation runs isolated, no ": " inside a token, at most four words.
    "uw-2025": Rules(unit="line", fence="uw-2025-fence", max_words=4, forbid=(": ",)),
    # Grigorev's experiment: punctuation ends a span; spans over 20 tokens are cut every 10; p99 truncation; a
    # quarter of the documents.
    "seed": Rules(fence="punctuation-fence", span_trigger=20, span_cap=10, truncate_quantile=0.99, sample=0.25),
}
