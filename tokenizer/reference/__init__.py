"""The specification of byte-level BPE, in plain Python: what every fast implementation must equal.

Tokens are byte strings here and merges are pairs of byte strings, so that the rules can be read off the code;
ids are other modules' business. The trainers and the encoders are ladders: each rung is one step of the source
documents on the way from the textbook's four lines to a practical trainer, and gives what the first gives.

- `text`, `chunks`: special strings, units and the pattern cut text; counting, in one process or several.
- `pairs`: tokens, pairs, and which of several equally frequent pairs is merged.
- `words`, `selection`, `parallel`: how a rung holds the corpus, and how it finds the best pair.
- `training`: the loop over both, and `TRAINERS`, every rung by its name.
- `encoding`, `two_pass`: `ENCODERS`, and the two ways to encode a text; `dropout`: both with merges left out.
"""

from tokenizer.reference.chunks import chunk_boundaries, count_file, cutting_token
from tokenizer.reference.dropout import Coin, coins, distribution, encode_with_dropout, merge_with_dropout
from tokenizer.reference.encoding import (
    ENCODERS,
    Encoder,
    as_bytes,
    encode,
    merge_by_rank,
    merge_linked,
    ranks_of,
    replay,
)
from tokenizer.reference.pairs import (
    TIE_BREAKS,
    Merge,
    Pair,
    Ties,
    Word,
    break_tie,
    byte_alphabet,
    count_pairs,
    replace_pair,
)
from tokenizer.reference.parallel import ParallelWords, Workers
from tokenizer.reference.selection import CachedTopPairs, HeapPairs, PairCounts, Selection, SortedPairs
from tokenizer.reference.text import boundaries, count_pretokens, cut_at_special, cut_into_units, split
from tokenizer.reference.training import (
    EXACT,
    RUNGS,
    TRAINERS,
    Trainer,
    as_words,
    divergence,
    learn,
    train_naive,
    train_sorted,
    train_words,
    train_words_naive,
    train_words_sorted,
)
from tokenizer.reference.two_pass import byte_positions, encode_two_pass, open_runs

__all__ = [
    "ENCODERS",
    "EXACT",
    "RUNGS",
    "TIE_BREAKS",
    "TRAINERS",
    "CachedTopPairs",
    "Coin",
    "Encoder",
    "HeapPairs",
    "Merge",
    "Pair",
    "PairCounts",
    "ParallelWords",
    "Selection",
    "SortedPairs",
    "Ties",
    "Trainer",
    "Word",
    "Workers",
    "as_bytes",
    "as_words",
    "boundaries",
    "break_tie",
    "byte_alphabet",
    "byte_positions",
    "chunk_boundaries",
    "coins",
    "count_file",
    "count_pairs",
    "count_pretokens",
    "cut_at_special",
    "cut_into_units",
    "cutting_token",
    "distribution",
    "divergence",
    "encode",
    "encode_two_pass",
    "encode_with_dropout",
    "learn",
    "merge_by_rank",
    "merge_linked",
    "merge_with_dropout",
    "open_runs",
    "ranks_of",
    "replace_pair",
    "replay",
    "split",
    "train_naive",
    "train_sorted",
    "train_words",
    "train_words_naive",
    "train_words_sorted",
]
