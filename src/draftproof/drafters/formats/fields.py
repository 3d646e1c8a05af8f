"""Typed reading of a raw configuration, which remembers what was read.

Real files keep the same setting at different places: ``dflash_config.block_size`` in newer ones,
``block_size`` at top level in older ones. :class:`Fields` looks through its sections in order, and what
nobody asked for is reported afterwards instead of being dropped silently. ``null`` counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from draftproof.drafters.values import LIMITS, check_integer, check_number, show
from draftproof.errors import SpecError

# Keys that Hugging Face writes into every config and that do not change what a drafter computes.
IRRELEVANT = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "_name_or_path",
        "add_cross_attention",
        "attention_dropout",
        "attn_implementation",
        "auto_map",
        "begin_suppress_tokens",
        "bos_token_id",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "dtype",
        "exponential_decay_length_penalty",
        "finetuning_task",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "id2label",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "label2id",
        "model_type",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "prefix",
        "pretraining_tp",
        "problem_type",
        "pruned_heads",
        "return_dict",
        "sep_token_id",
        "suppress_tokens",
        "task_specific_params",
        "tf_legacy_loss",
        "tie_encoder_decoder",
        "tie_word_embeddings",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
    }
)


@dataclass
class Section:
    """One JSON object of the file. ``name`` is its dotted path, empty at top level."""

    name: str
    data: Mapping[str, Any]
    used: set[str] = field(default_factory=set)

    def path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


@dataclass(frozen=True)
class Found:
    name: str  # dotted, as a person finds it in the file
    value: Any


class Fields:
    """Sections of one configuration, the most specific first."""

    def __init__(self, *sections: Section) -> None:
        self.sections = sections
        self.warnings: list[str] = []
        self.unread: list[str] = []  # unknown keys of objects that have a reader of their own

    @classmethod
    def of(cls, config: Mapping[str, Any], nested: str | None = None, prefix: str = "") -> Fields:
        """Top level of ``config``, preceded by its object ``nested`` (which may be absent)."""
        top = Section(prefix, config)
        if nested is None:
            return cls(top)
        top.used.add(nested)
        inner = config.get(nested)
        if inner is None:
            inner = {}
        if not isinstance(inner, Mapping):
            raise SpecError(f"{top.path(nested)}={show(inner)} must be an object")
        return cls(Section(top.path(nested), inner), top)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def find(self, key: str) -> Found | None:
        """First non-null value; a later section that says something else is worth a warning."""
        hits: list[Found] = []
        for section in self.sections:
            if key in section.data:
                section.used.add(key)
                if section.data[key] is not None:
                    hits.append(Found(section.path(key), section.data[key]))
        for other in hits[1:]:
            if other.value != hits[0].value:
                self.warn(
                    f"{hits[0].name}={show(hits[0].value)} is used; {other.name}={show(other.value)} "
                    "disagrees, and engines that read only that one will differ"
                )
        return hits[0] if hits else None

    def require(self, key: str) -> Found:
        hit = self.find(key)
        if hit is None:
            places = " or ".join(s.name or "the top level" for s in self.sections)
            raise SpecError(f"{key} is missing: it belongs in {places} of the drafter's config")
        return hit

    def integer(self, key: str) -> int:
        return self._integer(self.require(key), key)

    def opt_integer(self, key: str) -> int | None:
        hit = self.find(key)
        return None if hit is None else self._integer(hit, key)

    @staticmethod
    def _integer(hit: Found, key: str) -> int:
        return check_integer(hit.name, hit.value, *LIMITS.get(key, (0, 2**31 - 1)))

    def opt_number(self, key: str, *, upto: float = float("inf")) -> float | None:
        hit = self.find(key)
        return None if hit is None else check_number(hit.name, hit.value, upto=upto)

    def opt_boolean(self, key: str) -> bool | None:
        hit = self.find(key)
        if hit is None:
            return None
        if not isinstance(hit.value, bool):
            raise SpecError(f"{hit.name}={show(hit.value)} must be true or false")
        return hit.value

    def opt_text(self, key: str) -> str | None:
        hit = self.find(key)
        if hit is None:
            return None
        if not isinstance(hit.value, str):
            raise SpecError(f"{hit.name}={show(hit.value)} must be text")
        return hit.value

    def opt_list(self, key: str) -> Found | None:
        hit = self.find(key)
        if hit is not None and not isinstance(hit.value, list | tuple):
            raise SpecError(f"{hit.name}={show(hit.value)} must be a list")
        return hit

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty if absent."""
        hit = self.opt_list(key)
        if hit is None:
            return ()
        for entry in hit.value:
            if not isinstance(entry, str):
                raise SpecError(f"{hit.name} holds {show(entry)}: every entry must be text")
        return tuple(hit.value)

    def opt_object(self, key: str) -> Mapping[str, Any] | None:
        hit = self.find(key)
        if hit is not None and not isinstance(hit.value, Mapping):
            raise SpecError(f"{hit.name}={show(hit.value)} must be an object")
        return None if hit is None else hit.value

    def touch(self, *keys: str) -> None:
        """Count ``keys`` as read: known, and without effect in this combination."""
        for section in self.sections:
            section.used.update(k for k in keys if k in section.data)

    def unknown(self) -> list[str]:
        """Dotted names of keys nobody asked for, in file order."""
        return self.unread + [
            section.path(printable(key))
            for section in reversed(self.sections)
            for key in section.data
            if key not in section.used and key not in IRRELEVANT
        ]


def printable(key: object) -> str:
    """A key as it stands in the file, unless it would break the line it is reported on."""
    return key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else show(key)
