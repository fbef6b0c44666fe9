"""The token before the first one of a document. Separate from the scoring, so that a mistake does not import Torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tokenizer.errors import UserError, listed, quoted, shortened
from tokenizer.formats.folder import FILE

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizer.interface import TokenizerLike

ENDS, GIVEN = "ends every text", "as given"


class StartToken(NamedTuple):
    """The token before the first one of a document.

    Attributes:
        why: Where it comes from.
        everywhere: Whether every window begins with it: the tokenizer's own call begins every text with it, so the
            model never saw text without it.
        before: Ids that precede it in every window, as `[gMASK]` does `<sop>` in GLM 4.
    """

    token: str
    id: int
    why: str
    everywhere: bool = False
    before: tuple[int, ...] = ()


def start_of(folder: Path, tokenizer: TokenizerLike, given: str | None = None) -> StartToken:
    """The token before the first one of a document.

    It is the one that is given; else the one with which the tokenizer's own call begins a text, after any others that
    the call begins it with; else its end of text; else its `bos_token`.

    Args:
        folder: Folder with the files of the tokenizer, for `transformers`.
        tokenizer: The tokenizer.
        given: String of a token; None to find it.

    Raises:
        UserError: If there is none, or the given one is not a token.
    """
    found = None if given is None else tokenizer.special_tokens.get(given, tokenizer.token_to_id(given))
    if given is not None and found is None:
        raise UserError(
            f"--start {quoted(given)} is not a token of {folder}; its special tokens are "
            f"{listed(map(quoted, tokenizer.special_tokens)) or 'none'}"
        )
    if found is None and (folder / FILE).is_file():  # our own format, which adds nothing to a text
        return StartToken(str(tokenizer.end_of_text), tokenizer.end_id, ENDS)
    import transformers

    transformers.utils.logging.set_verbosity_error()
    try:
        own = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        with_specials, plain = (own("a", add_special_tokens=add)["input_ids"] for add in (True, False))
    except Exception as error:  # any, in files that others wrote
        if found is not None:
            return StartToken(str(given), found, GIVEN)
        raise UserError(
            f"transformers cannot open the tokenizer of {folder}, so the token that precedes a document is unknown "
            f"({shortened(error)}); name it with --start TOKEN"
        ) from None
    places = range(len(with_specials) - len(plain) + 1)
    n_before = next((i for i in places if with_specials[i : i + len(plain)] == plain), 0)
    begins = with_specials[:n_before]
    if found is not None:
        return StartToken(str(given), found, GIVEN, everywhere=begins == [found])
    if begins:
        *before, token = own.convert_ids_to_tokens(begins)
        why = "begins every text" + (f", after {' '.join(before)}" if before else "")
        return StartToken(token, begins[-1], why, everywhere=True, before=tuple(begins[:-1]))
    if tokenizer.end_of_text is not None:
        return StartToken(tokenizer.end_of_text, tokenizer.end_id, ENDS)
    if own.bos_token is not None:
        return StartToken(own.bos_token, own.bos_token_id, "bos_token")
    raise UserError(f"the tokenizer of {folder} has no token that begins or ends a text; name one with --start TOKEN")
