"""The specification of byte-level BPE in plain Python. Every fast implementation must give the same results.

- `text`: the held-out split; cutting text into pretokens by special strings, units and the pattern; counting them.
- `naive`: training by its definition.
- `incremental`: the same merges from counts that are kept up to date, for real text.
- `balanced`: training in which the source that is compressed worst chooses the next merge (parity-aware BPE).
- `encoding`: one-pass encoding, and two-pass encoding: phase-1 merges, then phase-2 merges.
"""

from tokenizer.reference.encoding import (
    as_bytes,
    byte_positions,
    encode,
    encode_two_pass,
    merge_by_rank,
    open_runs,
    ranks_of,
)
from tokenizer.reference.incremental import train_incremental, train_words_incremental
from tokenizer.reference.naive import (
    Accept,
    Merge,
    Pair,
    Word,
    as_words,
    break_tie,
    byte_alphabet,
    count_pairs,
    is_forbidden,
    replace_pair,
    train_naive,
    train_words,
)
from tokenizer.reference.text import boundaries, count_pretokens, cut_at_special, cut_into_units, is_chosen, split
from tokenizer.train.bpe import TIE_BREAKS
