"""Rules, corpora and trainings, and their merges and pieces by the readable reference."""

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from superbpe import PRESETS, Rules, reference, train_superbpe
from tests.generated import defined
from tokenizer import Batch, count_pretokens, train_bpe
from tokenizer.reference import TIE_BREAKS, merge_by_rank, ranks_of, replace_pair

RULES = {
    **PRESETS,
    "spans": replace(PRESETS["spans"], sample=1.0),
    "nothing": Rules(),
    "kept": Rules(phase1_fence="kept"),
    "kept, uw fence": Rules(phase1_fence="kept", fence="uw-2025-fence", unit="line"),
    "kept, punctuation": Rules(phase1_fence="kept", fence="punctuation-fence", max_words=2),
    "words": Rules(fence="uw-2025-fence", max_words=2),
    "one word": Rules(max_words=1),
    "bytes": Rules(unit="line", max_bytes=7),
    "veto": Rules(forbid=("e ", r"\.", "é")),
    "rare": Rules(min_count=3, fence="punctuation-fence"),
    "short spans": Rules(span_trigger=7, span_cap=3),
    "wide spans": Rules(span_trigger=2, span_cap=9, unit="line"),
    "truncated": Rules(fence="punctuation-fence", truncate_quantile=0.6, unit="line"),
    "truncated, kept": Rules(
        fence="punctuation-fence", truncate_quantile=0.4, phase1_fence="kept", span_trigger=4, span_cap=2
    ),
    "odd fence": Rules(fence=r"(?=[aeiou])|\n"),
    "odd fence, kept": Rules(fence=r"(?<=[aeiou])|th", phase1_fence="kept"),
    "tokens": Rules(max_tokens=3, counting="non-overlapping", tie_break="lexicographic-greatest"),
    "runs, fenced": replace(PRESETS["runs"], fence="[aeiou] ", unit="line", max_words=3, max_tokens=2),
    "runs of words": replace(PRESETS["runs"], eligible="^ [a-z]+$", counting="overlapping", span_trigger=4, span_cap=3),
    "boundless, few eligible": replace(PRESETS["boundless"], eligible="e|t"),
}
COMPETING = [name for name, rules in RULES.items() if rules.interleave]
SPECIALS = ("<|endoftext|>",)


LETTERS = st.sampled_from(["ab ", "a ", "ab: .", "a1 \n", "é a", "東京 a"])
TEXTS = LETTERS.flatmap(lambda letters: st.text(alphabet=letters, max_size=24))
PRETOKENS = st.fixed_dictionaries(
    {
        "phase1_fence": st.just("kept"),
        "atoms": st.just("pretokens"),
        "eligible": st.sampled_from([r"\p{L}", ".", "^ ?a+$"]),
        "interleave": st.booleans(),
    }
)
TOKENS = st.fixed_dictionaries({"phase1_fence": st.sampled_from(["lifted", "kept"])})
SMALL_RULES = st.builds(
    lambda atoms, **rules: Rules(**atoms, **rules),
    atoms=TOKENS | PRETOKENS,
    unit=st.sampled_from(["document", "line"]),
    fence=st.sampled_from(
        [
            *("none", "uw-2025-fence", "punctuation-fence", "uw-paper-fence", "sentence-fence", "phrases-fence"),
            *("[b]", "(?=a)"),
        ]
    ),
    max_words=st.sampled_from([None, None, 1, 2]),
    max_bytes=st.sampled_from([None, None, 2, 5]),
    max_tokens=st.sampled_from([None, None, 2, 3]),
    counting=st.sampled_from(["overlapping", "non-overlapping"]),
    tie_break=st.sampled_from([None, *TIE_BREAKS]),
    forbid=st.sampled_from([(), (), (": ",), ("a ", "1"), (r"^ .*[b.]", "東$")]),
    min_count=st.sampled_from([1, 1, 2]),
    span_trigger=st.sampled_from([None, None, 2, 5]),
    span_cap=st.sampled_from([2, 3, 10]),
    truncate_quantile=st.sampled_from([None, None, 0.3, 0.9, 1.0]),
)


CORPORA = st.lists(TEXTS, min_size=1, max_size=6).filter(any)


def batches(documents, size=None):
    """The corpus as `train_superbpe` reads it, with N documents per batch."""
    size = size or len(documents)
    parts = [Batch.from_texts(documents[i : i + size]) for i in range(0, len(documents), size)]
    return lambda: iter(parts)


def pieces_of(documents, phase1, rules, n_kept):
    """The reference's pieces."""
    regex, specials = phase1.pattern.regex or None, list(phase1.special_tokens)
    return reference.training_pieces(documents, phase1.merges[:n_kept], regex, rules, special_tokens=specials)


def expected_lists(documents, phase1, rules, n_kept, n_merges, tie_break="lowest-ids"):
    """Phase-1 and superword merges of a vocabulary of a given size, also where they compete."""
    specials = list(phase1.special_tokens)
    kept = phase1.merges[: n_merges if rules.interleave else n_kept]
    pieces = pieces_of(documents, phase1, rules, len(kept))
    counts = reference.times_applied(pieces, kept, rules.phase1_fence)
    existing = [left + right for left, right in kept]
    n_new = n_merges if rules.interleave else n_merges - len(kept)
    learned = reference.train(pieces, n_new, rules, tie_break, existing, special_tokens=specials)
    if rules.interleave:
        n_phase1, n_superwords = reference.interleave(kept, counts, learned, n_merges)
        return kept[:n_phase1], learned[:n_superwords]
    return kept, learned


def segmentation(documents, tokenizer, phase1, rules):
    """Tokens of all pieces after the last merge, each merge made everywhere before the next."""
    phase2 = tokenizer.merges[tokenizer.n_phase1_merges :]
    kept = ranks_of(tokenizer.merges[: tokenizer.n_phase1_merges])
    tokens = Counter()
    for piece, count in pieces_of(documents, phase1, rules, len(phase1.merges)).items():
        trained = piece
        for merge in phase2:
            trained = replace_pair(trained, merge)
        assert tuple(merge_by_rank(piece, ranks_of(phase2))) == trained
        for token in trained:
            # A word whose last merge lost against superwords is several tokens, and no part of a superword.
            for part in [token] if token in tokenizer.vocab else merge_by_rank([bytes([byte]) for byte in token], kept):
                tokens[part] += count
    return tokens


def pairs(merges):
    """Merges without their counts."""
    return [(left, right) for left, right, _ in merges]


def train(phase1, documents, name, **options):
    """Train 160 merges. The first 100 are of phase 1, unless the rules find the transition."""
    transition = "auto" if name in COMPETING else 356
    return train_superbpe(
        phase1, batches(documents), vocab_size=256 + 160 + 1, transition=transition, rules=RULES[name], **options
    )


def small(documents, rules, n_kept, tie_break="lowest-ids", **options):
    """A training on a tiny corpus, and the two lists of merges that the reference gives for it."""
    specials = ["b a"][: n_kept % 2]
    counts = count_pretokens([Batch.from_texts(documents)], "gpt2", unit=rules.unit)
    phase1 = train_bpe(counts, 256 + n_kept + 25, special_tokens=specials)
    n_kept = min(n_kept, len(phase1.merges))
    options |= {"vocab_size": 256 + len(specials) + n_kept + 20, "rules": rules, "tie_break": tie_break}
    transition = None if rules.interleave else n_kept
    tokenizer = train_superbpe(phase1, batches(documents, 2), transition_merges=transition, **options)
    return tokenizer, expected_lists(documents, phase1, rules, n_kept, n_kept + 20, tie_break)


WORDS = ["ab", "abc", "dad", "a", "dada", "bc", ".", "12", "日", "<s>", "cab"]


def imported(rng, *, ignore_merges, special_inside=True, n_late=0):
    """Like the ranks of tiktoken in HF files: each token has all its derivations, in the order of the tokens.

    As in Llama 3, `n_late` tokens of a single derivation are then made after merges that use them.
    """
    ids = list(range(256))
    rng.shuffle(ids)
    byte_ids, vocab = list(ids), {bytes([byte]): i for byte, i in enumerate(ids)}
    merges, unmerged, specials = [], {}, {"<end>": 0}
    at = 256
    if special_inside:
        specials["<s>"] = at
        at += 1
    words = (b" abc", b"dada", b" cab", b" dad", b"abab", b"bcdab")
    spans = {word[i:j] for word in words for i in range(len(word)) for j in range(i + 2, len(word) + 1)}
    tokens = rng.sample(sorted(spans), 280 - at)
    # Mostly the short ones first, so that most tokens have derivations, and some none.
    for token in sorted(tokens, key=lambda token: len(token) + 1.5 * rng.random()):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        found = [(vocab[left], vocab[right], at) for left, right in cuts if left in vocab and right in vocab]
        merges += found
        if not found:
            unmerged[token] = at
        vocab[token] = at
        at += 1
    specials["<end>"] = at
    made = Counter(new for _, _, new in merges)
    late = [rule for rule in merges if made[rule[2]] == 1 and any(rule[2] in other[:2] for other in merges)]
    for rule in rng.sample(late, min(n_late, len(late))):
        last = max(i for i, other in enumerate(merges) if rule[2] in other[:2])
        merges.remove(rule)
        merges.insert(last, rule)  # after the merge that was there
    options = {"special_tokens": specials, "ignore_merges": ignore_merges, "unmerged": unmerged}
    return defined(merges, byte_ids=byte_ids, **options)


def documents_of(rng):
    found = ["".join(rng.choice(WORDS) + rng.choice(["", " ", " "]) for _ in range(30)) for _ in range(6)]
    return [*found, "dada", "", "\n\n dad dada", "ab ab ab ab. ab ab"]
