"""Probabilities of bytes under a model of tokens, wherever tokens begin and end.

A model gives probabilities to token sequences. What "the text goes on with these bytes" is worth to it must not depend
on how prompt and answer happen to be cut, or tokenizers with long tokens are judged by their cuts: a prompt that ends
in ` of` hides the token ` of the` from an answer ` the`, and an answer ` cat` misses what went to ` cat and`. Here the
probability that a text begins with a byte string is the sum over its canonical covers, and
everything else follows from it:

    P(answer | prompt) = P(text begins with prompt + answer) / P(text begins with prompt).

It is exact for the canonical tokenizations, those that the tokenizer makes. The model leaves some probability to others
and to special tokens inside the text; it counts for no text, `NextByte.lost` says how much it is, and it makes
probabilities of longer texts too low rather than too high. Where a text is a whole document, `<|endoftext|>` behind it
included, the probability is the usual product over its tokens.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lm.bytelevel.path_tree import PathTree
from lm.bytelevel.tokenization_paths import PathGroup, TokenizationPaths
from lm.bytelevel.tree_reader import Cost, TreeReader
from tokenizer.errors import UserError, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm.model.language_model import LanguageModel

END = 256
"""Index of the end of the document among the next bytes."""
Method = Literal["exact", "backed-up", "canonical"]
METHODS: tuple[Method, ...] = ("exact", "backed-up", "canonical")


class NextByte(NamedTuple):
    """What comes next.

    Attributes:
        probabilities: float64[257], of the 256 bytes and of the end of the document (`END`); the sum is 1.
        lost: Share of the prefix's probability that goes on by no canonical sequence and does not end. The
            probabilities are normalized after it is left out.
    """

    probabilities: NDArray[np.float64]
    lost: float


class ByteModel:
    """A model of tokens, asked for bytes. Texts begin a document.

    Args:
        lm: The model.
        method: "exact", or an approximation. "backed-up" (token healing) takes the one encoding of a string without
            its last token, and then all tokens that begin with what is left. "canonical" takes the one encoding alone,
            which is the usual score where prompt and answer have no token in common.

    Attributes:
        cost: What was done since it was last replaced by a new `Cost()`.
    """

    def __init__(self, lm: LanguageModel, method: Method = "exact") -> None:
        if method not in METHODS:
            raise UserError(f"method={method!r}; it is one of: {', '.join(METHODS)}")
        self.lm, self.method = lm, method
        self.covers = TokenizationPaths(lm.tokenizer)
        self.cost = Cost()
        self._reader = TreeReader(lm)
        vocab = lm.tokenizer.vocab
        self._text_ids = np.flatnonzero(lm.text_ids.numpy())
        self._first_byte = np.fromiter((token[0] if token else 0 for token in vocab), np.int64, len(vocab))

    def log_prob(self, text: str | bytes, prompt: str | bytes = b"", *, end: bool = False) -> float:
        """Log-probability, in nats, that a document that begins with `prompt` goes on with `text`.

        A text too long for the model is scored in parts, each with at least half of the positions as context where the
        document has them.

        Args:
            text: Bytes of UTF-8; they may end inside a character, as may the prompt.
            prompt: What stands before.
            end: The document also ends there.

        Raises:
            UserError: No text begins with these bytes.
        """
        before, rest = _bytes(prompt), _bytes(text)
        total = 0.0
        while rest or end:
            part = self._part(before, rest)
            last = end and part == len(rest)
            base, scores = self._score(before, [rest[:part]], end=last)
            total += scores[0] - base
            before, rest = before + rest[:part], rest[part:]
            if last:
                break
        return total

    def choices(self, prompt: str | bytes, answers: Sequence[str | bytes]) -> NDArray[np.float64]:
        """float64[answers]: `log_prob` of each answer behind the prompt, in one forward pass over all of them.

        Divide by the answers' bytes to choose among answers of unequal lengths: that, and not the number of
        characters or tokens, treats tokenizers alike.
        """
        before, after = _bytes(prompt), [_bytes(answer) for answer in answers]
        if any(self._part(before, answer) < len(answer) for answer in after):
            return np.array([self.log_prob(answer, before) for answer in after])
        base, scores = self._score(before, after)
        return np.array(scores) - base

    def next_byte(self, prefix: str | bytes) -> NextByte:
        """Distribution of what follows; by the exact method, whatever `method` is.

        Behind a token's end every token of the vocabulary may follow and is put to the encoder, which takes most of
        the time; `likeliest_byte` is several times as fast.
        """
        found, _ = self._next(_bytes(prefix), None)
        total = found.sum()
        return NextByte(found / total, 1.0 - float(total))

    def likeliest_byte(self, prefix: str | bytes) -> int:
        """The most probable next byte, or `END`: of `next_byte` the first maximum."""
        for most in (64, 1024, None):
            found, unknown = self._next(_bytes(prefix), most)
            low, high = np.sort(found)[-2:]
            if high - low > unknown:
                break
        return int(found.argmax())

    def _next(self, prefix: bytes, most: int | None) -> tuple[NDArray[np.float64], float]:
        """float64[257], probabilities of what follows, not normalized; and how much is not yet in them.

        Args:
            prefix: What stands before.
            most: Behind a token's end only so many most probable tokens are taken; None for all.
        """
        vocab = self.lm.tokenizer.vocab
        certain, tail = self.covers.settle(prefix)
        groups = self._covering(tail, "exact")
        # TokenizationPaths that end where the prefix ends: what follows is the model's next token.
        ended = [
            (*group.path, last)
            for group in groups
            for last in group.last.tolist()
            if len(vocab[last]) == len(tail) - group.start
        ]
        ended = ended if tail else [()]
        tree = PathTree([*(group.path for group in groups), *ended])
        trunk = self.lm.window([self.lm.eos_id, *certain, *tree.shared], tree.depth)
        table = self._reader.read(trunk, tree, self.cost)
        self.cost.widest = max(self.cost.widest, len(groups))
        base = tree.log_mass(table, groups)
        found = np.zeros(257)
        for group in groups:
            place = len(tail) - group.start
            longer = [i for i in group.last.tolist() if len(vocab[i]) > place]
            if longer:
                following = np.array([vocab[i][place] for i in longer])
                self._add(found, following, tree.log_probs(table, group.path, np.array(longer)) - base)
        scores = {path: tree.log_probs(table, path, self._text_ids) - base for path in ended}
        among, unknown = None, 0.0
        if most is not None and scores:
            chosen = np.unique(np.concatenate([np.argsort(score)[-most:] for score in scores.values()]))
            among = self._text_ids[chosen]
            unknown = sum(float(np.exp(np.delete(score, chosen)).sum()) for score in scores.values())
        for group in self.covers.following(tail, among) if ended else []:
            self._add(found, self._first_byte[group.last], tree.log_probs(table, group.path, group.last) - base)
        encoding = self.covers.encoding(tail)
        if encoding is not None:
            self._add(found, np.array([END]), tree.log_probs(table, encoding, np.array([self.lm.eos_id])) - base)
        self.cost.candidates = self.covers.checked
        return found, unknown

    def sample(self, prompt: str | bytes, n_bytes: int, *, seed: int, temperature: float = 1.0) -> bytes:
        """Sample a continuation byte by byte, until the document ends or there are `n_bytes`.

        Each byte is drawn from `next_byte`; a temperature then means the same to every tokenizer.
        """
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature={temperature} is not possible; use a positive number")
        rng = np.random.default_rng(seed)
        start = _bytes(prompt)
        data = start
        while len(data) - len(start) < n_bytes:
            with np.errstate(divide="ignore"):
                scores = np.log(self.next_byte(data).probabilities) / temperature
            weights = np.exp(scores - scores.max())
            drawn = int(rng.choice(257, p=weights / weights.sum()))
            if drawn == END:
                break
            data += bytes([drawn])
        return data[len(start) :]

    def is_greedy(self, text: str | bytes, prompt: str | bytes = b"") -> bool:
        """Whether each byte of `text` is the most probable one where it stands."""
        before = _bytes(prompt)
        for byte in _bytes(text):
            if self.likeliest_byte(before) != byte:
                return False
            before += bytes([byte])
        return True

    def heal(self, prompt: str | bytes, *, seed: int | None) -> list[int]:
        """Tokens for a prompt to go on from: a cover of it, drawn by its probability given the prompt.

        Without a seed, the most probable cover.

        The last token may go on behind the prompt. Sampling tokens from there samples from the model's distribution
        over canonical texts that begin with the prompt, also where it ends inside a word or a superword. Exact,
        whatever `method` is. For `lm.model.generation.generate_from`.
        """
        certain, tail = self.covers.settle(_bytes(prompt))
        if not tail:
            return certain
        groups = self._covering(tail, "exact")
        tree = PathTree([group.path for group in groups])
        trunk = self.lm.window([self.lm.eos_id, *certain, *tree.shared], tree.depth)
        table = self._reader.read(trunk, tree, self.cost)
        covers = [(*group.path, last) for group in groups for last in group.last.tolist()]
        scores = np.concatenate([tree.log_probs(table, group.path, group.last) for group in groups])
        weights = np.exp(scores - scores.max())
        drawn = int(weights.argmax())
        if seed is not None:
            drawn = int(np.random.default_rng(seed).choice(len(covers), p=weights / weights.sum()))
        return [*certain, *covers[drawn]]

    def _part(self, before: bytes, rest: bytes) -> int:
        """How many bytes of `rest` to score at a time, so that half of the positions are enough."""
        most = max(1, self.lm.model.context_tokens // 2)
        if len(rest) < most:
            return len(rest)
        _, tail = self.covers.settle(before)
        text = (tail + rest).decode(errors="ignore")  # a cut character at the end cannot matter much here
        lengths = [len(self.lm.tokenizer.vocab[i]) for i in self.lm.tokenizer.encode_ordinary(text)]
        ends = list(itertools.accumulate(lengths))
        first = next((i for i, end in enumerate(ends) if end > len(tail)), 0)
        # TokenizationPaths may be a little longer than the encoding.
        stop = first + max(1, most - 8)
        return len(rest) if stop >= len(ends) else max(1, ends[stop] - len(tail))

    def _score(self, prompt: bytes, answers: Sequence[bytes], *, end: bool = False) -> tuple[float, list[float]]:
        """Log of the mass of all texts that begin with the prompt, and with prompt and answer, up to a factor."""
        certain, tail = self.covers.settle(prompt)
        strings = []
        for data in (tail, *(tail + answer for answer in answers)):
            more, left = self.covers.settle(data)
            strings.append([group._replace(path=(*more, *group.path)) for group in self._covering(left, self.method)])
        if end:
            whole = self.covers.encoding(tail + answers[0])
            if whole is None:
                raise UserError("a document cannot end inside a character")
            strings[1] = [PathGroup(whole, 0, np.array([self.lm.eos_id]))]
        tree = PathTree(group.path for groups in strings for group in groups)
        self.cost.strings += len(strings)
        self.cost.widest = max(self.cost.widest, *map(len, strings))
        trunk = [self.lm.eos_id, *certain, *tree.shared]
        table = self._reader.read(trunk[-max(1, self.lm.model.context_tokens - tree.depth) :], tree, self.cost)
        self.cost.candidates = self.covers.checked
        base, *scores = (tree.log_mass(table, groups) for groups in strings)
        return base, scores

    def _covering(self, data: bytes, method: Method) -> list[PathGroup]:
        """TokenizationPaths of a string by one of the methods; the empty string has one without a last token."""
        if not data:
            return [PathGroup((), 0, np.empty(0, np.int64))]
        if method == "exact":
            found = self.covers.covering(data)
            assert found, f"the encoding of {quoted(data)} is a cover"
            return found
        encoding = self.covers.encoding(data)
        if encoding is None:
            raise UserError(
                f"{quoted(data)} ends inside a character, and {quoted(method)} scores whole texts; use method='exact'"
            )
        last = self.lm.tokenizer.vocab[encoding[-1]]
        reaching = self.covers.reaching(last) if method == "backed-up" else np.array(encoding[-1:], np.int64)
        return [PathGroup(encoding[:-1], len(data) - len(last), reaching)]

    @staticmethod
    def _add(found: NDArray[np.float64], places: NDArray[np.int64], log_probs: NDArray[np.float64]) -> None:
        found += np.bincount(places, np.exp(log_probs), minlength=len(found))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
