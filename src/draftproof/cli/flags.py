"""Lets a command take whole groups of flags as dataclasses, so that a flag is described in one place.

``@with_flags`` replaces every parameter annotated with a dataclass by that dataclass's fields. A flag that
was not given arrives as ``None``: that is how ``given()`` leaves the defaults to those who own them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class ReaderGone(Exception):
    """Whoever read our stdout has closed it (``draftproof … | head``)."""


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its dataclass parameters spread out into single flags."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(_bare(kind))}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _spread(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def spread(**values: Any) -> None:
        made = {
            name: kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        try:
            command(**made, **values)
        except BrokenPipeError as error:
            raise ReaderGone from error

    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread


def given(flags: Any) -> dict[str, Any]:
    """The fields of a group that were given on the command line."""
    values = {f.name: getattr(flags, f.name) for f in dataclasses.fields(flags)}
    return {name: value for name, value in values.items() if value is not None and value != []}


def flag_name(field: str) -> str:
    """How a field is spelt on the command line."""
    return "--" + field.replace("_", "-")


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _spread(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in dataclasses.fields(group)
    ]
