r"""Probabilities of byte strings under a token model, independent of token boundaries.

A model assigns probabilities to token sequences. The probability of an answer after a prompt must not depend on how the
two happen to be tokenized, or tokenizers with long tokens are penalized for their boundaries: a prompt that ends in
` of` excludes the token ` of the` from an answer ` the`, and an answer ` cat` loses the probability of ` cat and`. Here
the probability that a text begins with a byte string is the sum over its canonical tokenization paths
(`lm.bytelevel.tokenization_paths`), and everything else follows:

    P(answer | prompt) = P(text begins with prompt + answer) / P(text begins with prompt).

This is exact over canonical tokenizations, those that the tokenizer produces. The model gives some probability to other
sequences and to special tokens inside the text. That share counts for no text, so probabilities of longer texts are too
low rather than too high; `ByteModel.next_byte` measures it. For a whole document with its final `end_of_text`, the
probability is the usual product over its tokens.

If the tokenizer normalizes text, these are probabilities of normalized texts. Prompts and answers are normalized first;
a character that is cut off at the end is read as the start of a character of normalized text. Under NFC, no text with
"é" begins with "e", however it is encoded, so `e` and `\u0301` cannot be prompt and answer (a UserError).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lm.bytelevel.path_tree import PathTree, reader_of
from lm.bytelevel.tokenization_paths import Path, PathGroup, TokenizationPaths
from tokenizer.errors import UserError, quoted
from tokenizer.tokenizer import byte_level_bpe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lm.model.language_model import LanguageModel

END = 256
"""Index of the end of the document among the next bytes."""
_MOST_SCORES = 2**26
"""Maximum number of log-probabilities of a batch of requests, 512 MiB."""


class _Plan(NamedTuple):
    """Tokens to read for one request.

    Attributes:
        tail: Bytes of the prompt after the tokens that are certain.
        trunk: Tokens before the tree.
        tree: Tokenization paths of all strings.
        strings: Path groups of each string.
        ended: Paths that end where the prompt ends, if any token may follow.
    """

    tail: bytes
    trunk: list[int]
    tree: PathTree
    strings: list[list[PathGroup]]
    ended: list[Path]


class ByteModel:
    """Byte probabilities of a token model. Every text is the beginning of a document.

    Args:
        lm: The model.
        batch_tokens: Maximum number of tokens of a batch of requests, cached ones and padding included.
        batch_rows: Maximum number of requests of a batch.
    """

    def __init__(self, lm: LanguageModel, *, batch_tokens: int = 8192, batch_rows: int = 32) -> None:
        self.lm, self.batch_tokens, self.batch_rows = lm, batch_tokens, batch_rows
        self.paths = TokenizationPaths(byte_level_bpe(lm.tokenizer, "byte probabilities need"))
        self._reader = reader_of(lm, batch_tokens)
        self._text_ids = np.flatnonzero(lm.text_ids.numpy())

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
            last = part == len(rest)
            [scores] = self._score([self._plan(before, [rest[:part]], end=end and last)])
            total += float(scores[0])
            before, rest, end = before + rest[:part], rest[part:], end and not last
        return total

    def choices(self, requests: Sequence[tuple[str | bytes, Sequence[str | bytes]]]) -> list[NDArray[np.float64]]:
        """For each pair of a prompt and its answers, float64[answers]: `log_prob` of each answer after the prompt.

        The answers to one prompt are read together, and prompts in batches. To choose among answers of unequal lengths,
        divide by their bytes. Unlike characters or tokens, bytes treat all tokenizers the same way.
        """
        one_by_one: dict[int, NDArray[np.float64]] = {}
        plans: list[_Plan] = []
        for i, (prompt, answers) in enumerate(requests):
            before = self.paths.normalized(_bytes(prompt))
            after = [self._split(prompt, answer)[1] for answer in answers]
            if any(self._part(before, answer) < len(answer) for answer in after):
                one_by_one[i] = np.array([self.log_prob(answer, prompt) for answer in answers])
            else:
                plans.append(self._plan(before, after))
        scores = iter(self._score(plans))
        return [one_by_one[i] if i in one_by_one else next(scores) for i in range(len(requests))]

    def next_byte(self, prefix: str | bytes) -> NDArray[np.float64]:
        """float64[257]: probabilities that the next byte is each of the 256, and that the document ends (`END`).

        They sum to less than 1: the rest belongs to continuations that are not canonical.

        After the end of a token any token of the vocabulary may follow, and the encoder checks each one, which takes
        most of the time. `likeliest_bytes` is several times faster.
        """
        [(plan, table)] = self._tables([self._plan(self.paths.normalized(_bytes(prefix)), following=True)])
        return self._next(plan, table, None)[0]

    def likeliest_bytes(self, prefixes: Sequence[str | bytes]) -> list[int]:
        """The most probable next byte of each prefix, or `END`: the first maximum of `next_byte`."""
        before = [self.paths.normalized(_bytes(prefix)) for prefix in prefixes]
        distinct = list(dict.fromkeys(before))
        best = []
        for plan, table in self._tables([self._plan(prefix, following=True) for prefix in distinct]):
            for most in (64, 1024, None):
                probabilities, unknown = self._next(plan, table, most)
                low, high = np.sort(probabilities)[-2:]
                if high - low > unknown:
                    break
            best.append(int(probabilities.argmax()))
        return [best[distinct.index(prefix)] for prefix in before]

    def greedy_of(self, requests: Sequence[tuple[str | bytes, str | bytes]]) -> list[bool]:
        """Whether each byte of a text is the most probable one at its position, for pairs of a text and its prompt.

        One pass reads the next byte of all pairs of a batch.
        """
        greedy = [True] * len(requests)
        for first in range(0, len(requests), self.batch_rows):
            rows = range(first, min(first + self.batch_rows, len(requests)))
            going = [(i, *self._split(requests[i][1], requests[i][0])) for i in rows]
            while going := [(i, before, rest) for i, before, rest in going if rest and greedy[i]]:
                likeliest = self.likeliest_bytes([before for _, before, _ in going])
                for (i, _, rest), byte in zip(going, likeliest, strict=True):
                    greedy[i] = rest[0] == byte
                going = [(i, before + rest[:1], rest[1:]) for i, before, rest in going]
        return greedy

    def heal(self, prompt: str | bytes, *, seed: int | None) -> list[int]:
        """Draw a tokenization path of a prompt, by its probability, for `lm.model.generation.generate`.

        The last token may extend past the prompt. Sampling on from the path samples from the model's distribution over
        canonical texts that begin with the prompt, even if it ends inside a word or a superword.

        Args:
            prompt: The prompt.
            seed: Seed of the draw; None takes the most probable path.
        """
        data = self.paths.normalized(_bytes(prompt))
        certain, tail = self.paths.stable_prefix(data)
        if not tail:
            return certain
        [(plan, table)] = self._tables([self._plan(data)])
        [groups] = plan.strings
        paths = [(*group.prefix, last) for group in groups for last in group.last.tolist()]
        scores = np.concatenate([plan.tree.log_probs(table, group.prefix, group.last) for group in groups])
        weights = np.exp(scores - scores.max())
        drawn = int(weights.argmax())
        if seed is not None:
            drawn = int(np.random.default_rng(seed).choice(len(paths), p=weights / weights.sum()))
        return [*certain, *paths[drawn]]

    def _next(self, plan: _Plan, table: NDArray[np.float64], most: int | None) -> tuple[NDArray[np.float64], float]:
        """As for `next_byte`, from a plan with `following`; and the probability that is missing.

        It is missing if only the `most` probable tokens are considered after the end of a token.
        """
        vocab = self.lm.tokenizer.vocab
        tail, tree, ended = plan.tail, plan.tree, plan.ended
        [groups] = plan.strings
        base = tree.log_mass(table, groups)
        probabilities = np.zeros(257)

        def add(path: Path, last: NDArray[np.int64], following: list[int]) -> None:
            if following:
                np.add.at(probabilities, following, np.exp(tree.log_probs(table, path, last) - base))

        for group in groups:
            place = len(tail) - group.start
            longer = group.last[self.paths.lengths[group.last] > place]
            add(group.prefix, longer, [vocab[i][place] for i in longer])
        among, unknown = None, 0.0
        if most is not None and ended:
            scores = [tree.log_probs(table, path, self._text_ids) - base for path in ended]
            chosen = np.unique(np.concatenate([np.argsort(score)[-most:] for score in scores]))
            among = self._text_ids[chosen]
            unknown = sum(float(np.exp(np.delete(score, chosen)).sum()) for score in scores)
        for group in self.paths.extend(tail, among) if ended else []:
            add(group.prefix, group.last, [vocab[i][0] for i in group.last])
        if self.lm.eos_id is not None and (encoding := self.paths.encoding(tail)) is not None:
            add(encoding, np.array([self.lm.eos_id]), [END])
        return probabilities, unknown

    def _part(self, before: bytes, rest: bytes) -> int:
        """How many bytes of `rest` fit into half of the positions."""
        most = max(1, self.lm.model.context_tokens // 2)
        if len(rest) < most:
            return len(rest)
        _, tail = self.paths.stable_prefix(before)
        text = (tail + rest).decode(errors="ignore")  # a cut character at the end hardly matters for an estimate
        lengths = [len(self.lm.tokenizer.vocab[i]) for i in self.lm.tokenizer.encode_ordinary(text)]
        ends = [end - len(tail) for end in itertools.accumulate(lengths) if end > len(tail)]
        stop = max(1, most - 8)  # paths may be a little longer than the encoding
        return len(rest) if stop >= len(ends) else ends[stop]

    def _plan(
        self, prompt: bytes, answers: Sequence[bytes] = (), *, end: bool = False, following: bool = False
    ) -> _Plan:
        """Plan to read for the probabilities of the prompt, and of prompt and answers.

        With `end`, the document ends after the only answer. With `following`, the next tokens are read too.
        """
        certain, tail = self.paths.stable_prefix(prompt)
        strings = [self.paths.find(tail)]
        for answer in answers:
            more, left = self.paths.stable_prefix(tail + answer)
            strings.append([group._replace(prefix=(*more, *group.prefix)) for group in self.paths.find(left)])
        if end:
            whole = self.paths.encoding(tail + answers[0])
            if whole is None:
                raise UserError("a document cannot end inside a character")
            if self.lm.eos_id is None:
                raise UserError("the model's tokenizer has no end of text, so documents do not end; use end=False")
            strings[1] = [PathGroup(whole, 0, np.array([self.lm.eos_id]))]
        ended: list[Path] = [()] if following and not tail else []
        for group in strings[0] if following else []:
            ends = group.last[self.paths.lengths[group.last] == len(tail) - group.start]
            ended += [(*group.prefix, last) for last in ends.tolist()]
        tree = PathTree([*(group.prefix for groups in strings for group in groups), *ended])
        most = self.lm.model.context_tokens - tree.depth
        trunk = self.lm.window([self.lm.start_id, *certain, *tree.shared], max(1, most))
        if len(trunk) > most:
            raise UserError(
                f"the tokenization paths of a text differ over {tree.depth} tokens, but the model has only "
                f"{self.lm.model.context_tokens} positions; use a model with a longer context"
            )
        return _Plan(tail, trunk, tree, strings, ended)

    def _score(self, plans: Sequence[_Plan]) -> Iterator[NDArray[np.float64]]:
        """float64[answers] for each plan: log-probabilities of the answers after the prompt."""
        for plan, table in self._tables(plans):
            base, *scores = (plan.tree.log_mass(table, groups) for groups in plan.strings)
            yield np.array(scores) - base

    def _tables(self, plans: Sequence[_Plan]) -> Iterator[tuple[_Plan, NDArray[np.float64]]]:
        """Read the plans in batches."""
        batch: list[_Plan] = []
        for plan in [*plans, None]:
            rows = batch if plan is None else [*batch, plan]
            width = max((len(row.trunk) + len(row.tree.tokens) for row in rows), default=0)
            scores = sum(1 + len(row.tree.tokens) for row in rows) * len(self.lm.text_ids)
            full = len(rows) > self.batch_rows or len(rows) * width > self.batch_tokens or scores > _MOST_SCORES
            if batch and (plan is None or full):
                yield from zip(batch, self._reader.read([(row.trunk, row.tree) for row in batch]), strict=True)
                batch = []
            if plan is not None:
                batch.append(plan)

    def _split(self, prompt: str | bytes, text: str | bytes) -> tuple[bytes, bytes]:
        """Bytes of the prompt, and bytes that the text adds to it."""
        before, whole = (self.paths.normalized(data) for data in (_bytes(prompt), _bytes(prompt) + _bytes(text)))
        if not whole.startswith(before):
            raise UserError(
                f"normalization changes the end of the prompt, {quoted(prompt[-8:])}, together with the text after it, "
                f"{quoted(text[:8])}; split them elsewhere"
            )
        return before, whole[len(before) :]


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
