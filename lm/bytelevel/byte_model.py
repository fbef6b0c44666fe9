r"""Probabilities of byte strings under a token model, independent of token boundaries.

A model assigns probabilities to token sequences. The probability of an answer after a prompt must not depend on how the
two happen to be tokenized, or tokenizers with long tokens are penalized for their boundaries: a prompt that ends in
` of` excludes the token ` of the` from an answer ` the`, and an answer ` cat` loses the probability of ` cat and`. Here
the probability that a text begins with a byte string is the sum over its canonical tokenization paths
(`lm.bytelevel.tokenization_paths`), and everything else follows:

    P(answer | prompt) = P(text begins with prompt + answer) / P(text begins with prompt).

This is exact over canonical tokenizations, those that the tokenizer produces. The model gives some probability to other
sequences and to special tokens inside the text. That share counts for no text, so probabilities of longer texts are too
low rather than too high; `NextByte.lost` measures it. For a whole document with its final `<|endoftext|>`, the
probability is the usual product over its tokens.

If the tokenizer normalizes text, these are probabilities of normalized texts. Prompts and answers are normalized first;
a character that is cut off at the end is read as the start of a character of normalized text. Under NFC, no text with
"é" begins with "e", however it is encoded, so `e` and `\u0301` cannot be prompt and answer (a UserError).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lm.bytelevel.path_tree import PathTree
from lm.bytelevel.tokenization_paths import Path, PathGroup, TokenizationPaths
from lm.bytelevel.tree_reader import Cost, TreeReader
from tokenizer.errors import UserError, check_choice, quoted
from tokenizer.tokenizer import byte_level_bpe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lm.bytelevel.tree_reader import LogProbs
    from lm.model.language_model import LanguageModel

END = 256
"""Index of the end of the document among the next bytes."""
Method = Literal["exact", "backed-up", "canonical"]
METHODS: tuple[Method, ...] = ("exact", "backed-up", "canonical")


class NextByte(NamedTuple):
    """Distribution of the next byte.

    Attributes:
        probabilities: float64[257]: the 256 bytes and the end of the document (`END`); they sum to 1.
        lost: Share of the prefix's probability that belongs to non-canonical continuations, removed before the
            probabilities are normalized.
    """

    probabilities: NDArray[np.float64]
    lost: float


class _Plan(NamedTuple):
    """What to read for one request.

    Attributes:
        tail: Bytes of the prompt after the tokens that are certain.
        trunk: Tokens before the tree.
        tree: Tokenization paths of all strings.
        strings: Path groups of each string.
        ended: Paths that end where the prompt ends.
    """

    tail: bytes
    trunk: list[int]
    tree: PathTree
    strings: list[list[PathGroup]]
    ended: list[Path] = []  # noqa: RUF012


class ByteModel:
    """Byte probabilities of a token model. Every text is the beginning of a document.

    Args:
        lm: The model.
        method: "exact" or an approximation. "backed-up" (token healing) drops the last token of the encoding and sums
            over all tokens that begin with the remaining bytes. "canonical" uses the encoding alone: the usual score
            when no token spans prompt and answer.
        batch_tokens: Maximum number of tokens of a batch of requests, cached ones and padding included.
        batch_rows: Maximum number of requests of a batch.

    Attributes:
        cost: Work done since it was last replaced by a new `Cost()`.
    """

    def __init__(
        self, lm: LanguageModel, method: Method = "exact", *, batch_tokens: int = 8192, batch_rows: int = 32
    ) -> None:
        check_choice("method", method, METHODS)
        self.lm, self.method = lm, method
        self.batch_tokens, self.batch_rows = batch_tokens, batch_rows
        self.paths = TokenizationPaths(byte_level_bpe(lm.tokenizer, "byte probabilities need"))
        self.cost = Cost()
        self._reader = TreeReader(lm)
        vocab = lm.tokenizer.vocab
        self._text_ids = np.flatnonzero(lm.text_ids.numpy())
        self._first_byte = np.fromiter((token[0] if token else 0 for token in vocab), np.int64, len(vocab))

    def log_prob(self, text: str | bytes, prompt: str | bytes = b"", *, end: bool = False) -> float:
        """Log-probability, in nats, that a document that begins with `prompt` continues with `text`.

        A text too long for the model is scored in parts, each with at least half of the positions as context if the
        document has that many.

        Args:
            text: UTF-8 bytes; like the prompt, they may end inside a character.
            prompt: The bytes before the text.
            end: Include the probability that the document ends after the text.

        Raises:
            UserError: If the bytes are not a prefix of valid UTF-8, or if normalization changes the end of the prompt
                together with the text.
        """
        before, rest = self._split(prompt, text)
        total = 0.0
        while rest or end:
            part = self._part(before, rest)
            last = end and part == len(rest)
            [scores] = self._score([self._plan(before, [rest[:part]], end=last)])
            total += float(scores[0])
            before, rest = before + rest[:part], rest[part:]
            if last:
                break
        return total

    def choices(self, prompt: str | bytes, answers: Sequence[str | bytes]) -> NDArray[np.float64]:
        """float64[answers]: `log_prob` of each answer after the prompt, in one forward pass.

        To choose among answers of unequal lengths, divide by their bytes. Unlike characters or tokens, bytes treat all
        tokenizers the same way.
        """
        return self.choices_of([(prompt, answers)])[0]

    def choices_of(self, requests: Sequence[tuple[str | bytes, Sequence[str | bytes]]]) -> list[NDArray[np.float64]]:
        """`choices` for each pair of a prompt and its answers, in batches."""
        found: dict[int, NDArray[np.float64]] = {}
        plans: list[_Plan] = []
        for i, (prompt, answers) in enumerate(requests):
            before = self._normalized(prompt)
            after = [self._split(prompt, answer)[1] for answer in answers]
            if any(self._part(before, answer) < len(answer) for answer in after):
                found[i] = np.array([self.log_prob(answer, prompt) for answer in answers])
            else:
                plans.append(self._plan(before, after))
        scores = iter(self._score(plans))
        return [found[i] if i in found else next(scores) for i in range(len(requests))]

    def next_byte(self, prefix: str | bytes) -> NextByte:
        """Distribution of the next byte, always by the exact method.

        After the end of a token any token of the vocabulary may follow, and the encoder checks each one, which takes
        most of the time. `likeliest_byte` is several times faster.
        """
        [(plan, table)] = self._tables([self._plan_next(self._normalized(prefix))])
        found, _ = self._next(plan, table, None)
        total = found.sum()
        return NextByte(found / total, 1.0 - float(total))

    def likeliest_byte(self, prefix: str | bytes) -> int:
        """The most probable next byte or `END`: the first maximum of `next_byte`."""
        return self._likeliest([self._normalized(prefix)])[0]

    def _likeliest(self, prefixes: Sequence[bytes]) -> list[int]:
        found = []
        for plan, table in self._tables([self._plan_next(prefix) for prefix in prefixes]):
            for most in (64, 1024, None):
                probabilities, unknown = self._next(plan, table, most)
                low, high = np.sort(probabilities)[-2:]
                if high - low > unknown:
                    break
            found.append(int(probabilities.argmax()))
        return found

    def _plan_next(self, prefix: bytes) -> _Plan:
        """What to read for the next byte: the paths of the prefix, and those that end where it ends."""
        vocab = self.lm.tokenizer.vocab
        certain, tail = self.paths.stable_prefix(prefix)
        groups = self._paths_of(tail, "exact")
        # Paths that end where the prefix ends: the model's next token follows.
        ended = [
            (*group.prefix, last)
            for group in groups
            for last in group.last.tolist()
            if len(vocab[last]) == len(tail) - group.start
        ]
        ended = ended if tail else [()]
        tree = PathTree([*(group.prefix for group in groups), *ended])
        trunk = self.lm.window([self.lm.eos_id, *certain, *tree.shared], tree.depth)
        self.cost.widest = max(self.cost.widest, len(groups))
        return _Plan(tail, trunk, tree, [groups], ended)

    def _next(self, plan: _Plan, table: LogProbs, most: int | None) -> tuple[NDArray[np.float64], float]:
        """float64[257], unnormalized probabilities of the next byte, and the probability missing from them.

        Args:
            plan: From `_plan_next`.
            table: What was read for it.
            most: Number of most probable tokens to consider after the end of a token; None for all.
        """
        vocab = self.lm.tokenizer.vocab
        tail, tree, ended = plan.tail, plan.tree, plan.ended
        [groups] = plan.strings
        base = tree.log_mass(table, groups)
        found = np.zeros(257)
        for group in groups:
            place = len(tail) - group.start
            longer = [i for i in group.last.tolist() if len(vocab[i]) > place]
            if longer:
                following = np.array([vocab[i][place] for i in longer])
                self._add(found, following, tree.log_probs(table, group.prefix, np.array(longer)) - base)
        scores = {path: tree.log_probs(table, path, self._text_ids) - base for path in ended}
        among, unknown = None, 0.0
        if most is not None and scores:
            chosen = np.unique(np.concatenate([np.argsort(score)[-most:] for score in scores.values()]))
            among = self._text_ids[chosen]
            unknown = sum(float(np.exp(np.delete(score, chosen)).sum()) for score in scores.values())
        for group in self.paths.extend(tail, among) if ended else []:
            self._add(found, self._first_byte[group.last], tree.log_probs(table, group.prefix, group.last) - base)
        encoding = self.paths.encoding(tail)
        if encoding is not None:
            self._add(found, np.array([END]), tree.log_probs(table, encoding, np.array([self.lm.eos_id])) - base)
        self.cost.candidates = self.paths.n_checked
        return found, unknown

    def sample(self, prompt: str | bytes, n_bytes: int, *, seed: int, temperature: float = 1.0) -> bytes:
        """Sample a continuation byte by byte, up to `n_bytes` or the end of the document.

        Each byte is drawn from `next_byte`, so a temperature means the same for every tokenizer.
        """
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature={temperature} must be a positive number")
        rng = np.random.default_rng(seed)
        start = self._normalized(prompt)
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
        """Whether each byte of `text` is the most probable one at its position."""
        return self.greedy_of([(text, prompt)])[0]

    def greedy_of(self, requests: Sequence[tuple[str | bytes, str | bytes]]) -> list[bool]:
        """`is_greedy` for each pair of a text and its prompt; one pass reads the next byte of all pairs of a batch."""
        greedy = [True] * len(requests)
        for first in range(0, len(requests), self.batch_rows):
            rows = range(first, min(first + self.batch_rows, len(requests)))
            going = [(i, *self._split(requests[i][1], requests[i][0])) for i in rows]
            while going := [(i, before, rest) for i, before, rest in going if rest and greedy[i]]:
                bytes_found = self._likeliest([before for _, before, _ in going])
                for (i, _, rest), byte in zip(going, bytes_found, strict=True):
                    greedy[i] = rest[0] == byte
                going = [(i, before + rest[:1], rest[1:]) for i, before, rest in going]
        return greedy

    def heal(self, prompt: str | bytes, *, seed: int | None) -> list[int]:
        """Draw a tokenization path of a prompt, by its probability, for `lm.model.generation.generate_from`.

        The last token may extend past the prompt. Sampling on from the path samples from the model's distribution over
        canonical texts that begin with the prompt, even if it ends inside a word or a superword. Always exact.

        Args:
            prompt: The prompt.
            seed: Seed of the draw; None takes the most probable path.
        """
        certain, tail = self.paths.stable_prefix(self._normalized(prompt))
        if not tail:
            return certain
        groups = self._paths_of(tail, "exact")
        tree = PathTree([group.prefix for group in groups])
        trunk = self.lm.window([self.lm.eos_id, *certain, *tree.shared], tree.depth)
        [table] = self._reader.read([(trunk, tree)], self.cost)
        paths = [(*group.prefix, last) for group in groups for last in group.last.tolist()]
        scores = np.concatenate([tree.log_probs(table, group.prefix, group.last) for group in groups])
        weights = np.exp(scores - scores.max())
        drawn = int(weights.argmax())
        if seed is not None:
            drawn = int(np.random.default_rng(seed).choice(len(paths), p=weights / weights.sum()))
        return [*certain, *paths[drawn]]

    def _part(self, before: bytes, rest: bytes) -> int:
        """How many bytes of `rest` fit into half of the positions."""
        most = max(1, self.lm.model.context_tokens // 2)
        if len(rest) < most:
            return len(rest)
        _, tail = self.paths.stable_prefix(before)
        text = (tail + rest).decode(errors="ignore")  # a cut character at the end hardly matters for an estimate
        lengths = [len(self.lm.tokenizer.vocab[i]) for i in self.lm.tokenizer.encode_ordinary(text)]
        ends = list(itertools.accumulate(lengths))
        first = next((i for i, end in enumerate(ends) if end > len(tail)), 0)
        # Paths may be a little longer than the encoding.
        stop = first + max(1, most - 8)
        return len(rest) if stop >= len(ends) else max(1, ends[stop] - len(tail))

    def _plan(self, prompt: bytes, answers: Sequence[bytes], *, end: bool = False) -> _Plan:
        """What to read for the probabilities of the prompt, and of prompt and answers."""
        certain, tail = self.paths.stable_prefix(prompt)
        strings = []
        for data in (tail, *(tail + answer for answer in answers)):
            more, left = self.paths.stable_prefix(data)
            strings.append(
                [group._replace(prefix=(*more, *group.prefix)) for group in self._paths_of(left, self.method)]
            )
        if end:
            whole = self.paths.encoding(tail + answers[0])
            if whole is None:
                raise UserError("a document cannot end inside a character")
            strings[1] = [PathGroup(whole, 0, np.array([self.lm.eos_id]))]
        tree = PathTree(group.prefix for groups in strings for group in groups)
        self.cost.strings += len(strings)
        self.cost.widest = max(self.cost.widest, *map(len, strings))
        trunk = [self.lm.eos_id, *certain, *tree.shared]
        return _Plan(tail, trunk[-max(1, self.lm.model.context_tokens - tree.depth) :], tree, strings)

    def _score(self, plans: Sequence[_Plan]) -> Iterator[NDArray[np.float64]]:
        """float64[answers] for each plan: log-probabilities of the answers after the prompt."""
        for plan, table in self._tables(plans):
            base, *scores = (plan.tree.log_mass(table, groups) for groups in plan.strings)
            yield np.array(scores) - base

    def _tables(self, plans: Sequence[_Plan]) -> Iterator[tuple[_Plan, LogProbs]]:
        """Read the plans in batches."""
        batch: list[_Plan] = []
        for plan in [*plans, None]:
            rows = batch if plan is None else [*batch, plan]
            width = max((len(row.trunk) + len(row.tree.tokens) for row in rows), default=0)
            if batch and (plan is None or len(rows) > self.batch_rows or len(rows) * width > self.batch_tokens):
                yield from zip(
                    batch, self._reader.read([(row.trunk, row.tree) for row in batch], self.cost), strict=True
                )
                batch = []
            if plan is not None:
                batch.append(plan)
        self.cost.candidates = self.paths.n_checked

    def _paths_of(self, data: bytes, method: Method) -> list[PathGroup]:
        """Paths of a string by one of the methods; the empty string has one, without a last token."""
        if not data:
            return [PathGroup((), 0, np.empty(0, np.int64))]
        if method == "exact":
            found = self.paths.find(data)
            if not found:
                raise UserError(f"no normalized text begins with {quoted(data)}; end it with a whole character")
            return found
        encoding = self.paths.encoding(data)
        if encoding is None:
            raise UserError(
                f"{quoted(data)} ends inside a character, but {quoted(method)} scores whole texts; use method='exact'"
            )
        last = self.lm.tokenizer.vocab[encoding[-1]]
        last_ids = self.paths.beginning_with(last) if method == "backed-up" else np.array(encoding[-1:], np.int64)
        return [PathGroup(encoding[:-1], len(data) - len(last), last_ids)]

    def _normalized(self, text: str | bytes) -> bytes:
        return self.paths.normalized(_bytes(text))

    def _split(self, prompt: str | bytes, text: str | bytes) -> tuple[bytes, bytes]:
        """Bytes of the prompt, and bytes that the text adds to it."""
        before, whole = self._normalized(prompt), self._normalized(_bytes(prompt) + _bytes(text))
        if not whole.startswith(before):
            raise UserError(
                f"normalization changes the end of the prompt, {quoted(prompt[-8:])}, together with the text after it, "
                f"{quoted(text[:8])}; split them elsewhere"
            )
        return before, whole[len(before) :]

    @staticmethod
    def _add(found: NDArray[np.float64], places: NDArray[np.int64], log_probs: NDArray[np.float64]) -> None:
        found += np.bincount(places, np.exp(log_probs), minlength=len(found))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
