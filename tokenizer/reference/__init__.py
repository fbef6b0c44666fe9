"""The specification of byte-level BPE in plain Python. Every fast implementation must give the same results.

- `text`: cutting text into pretokens by special strings, units and the pattern, and counting them.
- `naive`: training by its definition.
- `fast`: the same merges with incremental counts.
- `encoding`: one-pass encoding.
- `two_pass`: two-pass encoding: phase-1 merges, then phase-2 merges.
"""

from tokenizer.reference.encoding import as_bytes, encode, merge_by_rank, ranks_of
from tokenizer.reference.fast import train_fast, train_words_fast
from tokenizer.reference.naive import (
    Accept,
    Merge,
    Pair,
    Word,
    as_words,
    break_tie,
    byte_alphabet,
    count_pairs,
    phase1_rules,
    replace_pair,
    train_naive,
    train_words,
)
from tokenizer.reference.text import boundaries, count_pretokens, cut_at_special, cut_into_units, split
from tokenizer.reference.two_pass import byte_positions, encode_two_pass, open_runs
from tokenizer.train.bpe import TIE_BREAKS

__all__ = [
    "TIE_BREAKS",
    "Accept",
    "Merge",
    "Pair",
    "Word",
    "as_bytes",
    "as_words",
    "boundaries",
    "break_tie",
    "byte_alphabet",
    "byte_positions",
    "count_pairs",
    "count_pretokens",
    "cut_at_special",
    "cut_into_units",
    "encode",
    "encode_two_pass",
    "merge_by_rank",
    "open_runs",
    "phase1_rules",
    "ranks_of",
    "replace_pair",
    "split",
    "train_fast",
    "train_naive",
    "train_words",
    "train_words_fast",
]
