"""Fields of settings: `declare` gives one its bounds, choices and help, and `check_fields` checks them."""

from __future__ import annotations

import dataclasses
import math
import numbers
import typing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any

from tokenizer.errors import UserError, check_choice, check_strings, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LIMITS = "limits"
_KINDS: dict[Any, tuple[type | tuple[type, ...], str]] = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "a string"),
    NoneType: (NoneType, "null"),
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Values that a field may have, and what it is.

    Attributes:
        above: A number that the value must be greater than.
        below: A number that the value must be less than.
        choices: The values that are allowed, if they can be listed.
        remedy: End of the message about a number out of range.
        help: What the setting is, for `superbpe pipeline --help`; empty for a setting that it does not list.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: Sequence[object] = ()
    remedy: str = ""
    help: str = ""

    def check(self, name: str, value: Any) -> None:
        """Raise a UserError for a value of the right type that is not allowed."""
        if self.choices:
            check_choice(name, value, self.choices)
        if value is None or isinstance(value, str | bool):
            return
        bounds = {
            f"at least {self.least}": self.least is None or value >= self.least,
            f"greater than {self.above}": self.above is None or value > self.above,
            f"at most {self.most}": self.most is None or value <= self.most,
            f"less than {self.below}": self.below is None or value < self.below,
        }
        if not all(bounds.values()):
            wanted = [text for text in bounds if not text.endswith("None")]
            raise UserError(f"{name}={value} must be {' and '.join(wanted)}{self.remedy}")


def declare(default: Any = dataclasses.MISSING, *, factory: Callable[[], Any] | None = None, **limits: Any) -> Any:
    """Declare a field of a dataclass with its `Limits`."""
    metadata = {_LIMITS: Limits(**limits)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def limits_of(field: dataclasses.Field[Any]) -> Limits:
    """The declaration (`declare`) of a field."""
    return typing.cast("Limits", field.metadata.get(_LIMITS, Limits()))


def check_fields(settings: Any, prefix: str = "") -> None:
    """Reject a dataclass with a field of another type than its annotation, or outside its `Limits`.

    Only plain types are checked.

    Args:
        settings: The dataclass.
        prefix: Path of the dataclass in the configuration, such as `deployment.`, for names that it shares with others.

    Raises:
        UserError: a value has another type, is not a number (NaN), or is out of range.
    """
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        name, value, hint = f"{prefix}{field.name}", getattr(settings, field.name), hints[field.name]
        origin = typing.get_origin(hint)
        kinds = typing.get_args(hint) if origin is UnionType else (hint,)
        if origin is tuple and typing.get_args(hint)[0] is str:
            check_strings(name, value)
        elif all(kind in _KINDS for kind in kinds):
            if not any(_is(value, kind) for kind in kinds):
                raise UserError(f"{name}={quoted(value)} must be {' or '.join(_KINDS[kind][1] for kind in kinds)}")
            limits_of(field).check(name, value)


def _is(value: object, kind: Any) -> bool:
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, _KINDS[kind][0]) and not (isinstance(value, float) and math.isnan(value))
