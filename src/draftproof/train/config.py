"""Settings of a training run: one flat, checked object, from YAML and flags."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from draftproof.errors import UsageError
from draftproof.train.answers import AnswerOptions
from draftproof.train.losses import LossKind

T = TypeVar("T")

# What may change between the start of a run and its resumption: how long it lasts and how often it looks up.
MAY_CHANGE = ("steps", "eval_every", "save_every", "decay_share", "eval_prompts", "eval_tokens")


@dataclass(frozen=True)
class TrainConfig:
    """The drafter's shape, then how it learns. Sizes that are not here are the target's.

    ``taps``: ``output_hidden_states`` indices, empty: spread evenly. ``full_layers``: how many of the last layers
    have no window. ``causal``: block rows see only rows before them. ``draft_vocab``: most frequent answer tokens
    that may be drafted, 0: all; ``negatives``: other tokens drawn anew each step to compete with those, so that the
    target's whole head ranks them rightly too. ``rows``: block lengths (anchor included) that training draws from.
    ``soft``: share of the target's whole distribution in what a slot should say, the rest is its token; needs the
    last hidden state among ``answers.taps``. ``init``: ``target`` (copies of its layers), ``random`` or a drafter's
    folder. ``decay_share``: the last part of ``steps``, over which the rate falls along a cosine to ``lr_end`` ×
    ``lr``; 1 is the ordinary cosine.
    """

    layers: int = 4
    full_layers: int = 1
    window: int = 128
    causal: bool = False
    block_size: int = 8
    taps: tuple[int, ...] = ()
    num_taps: int = 5
    mask_token_id: int = 6
    draft_vocab: int = 8192
    negatives: int = 1024
    init: str = "target"

    sequences: int = 8
    anchors: int = 24
    rows: tuple[int, ...] = (8,)
    loss: LossKind = "dpace"
    alpha: float = 0.5
    gamma: float = 4.0
    soft: float = 0.0
    lr: float = 6e-4
    lr_end: float = 0.02
    beta2: float = 0.95
    weight_decay: float = 0.01
    warmup: int = 60
    steps: int = 3000
    decay_share: float = 1.0
    clip: float = 1.0
    ema: float = 0.998
    autocast: bool = True
    seed: int = 0
    greedy_only: bool = False  # leave the sampled answers out
    held_out: int = 50  # one sequence in so many is kept out of training; 0: none

    save_every: int = 100
    eval_every: int = 400
    eval_prompts: int = 16
    eval_tokens: int = 96

    def __post_init__(self) -> None:
        rules = [
            ("layers", self.layers, self.layers >= 1, "at least 1"),
            ("full_layers", self.full_layers, 0 <= self.full_layers <= self.layers, "between 0 and layers"),
            ("block_size", self.block_size, self.block_size >= 2, "at least 2"),
            ("window", self.window, self.window >= self.block_size, "at least block_size"),
            ("rows", self.rows, self.rows and all(2 <= r <= self.block_size for r in self.rows), "2 to block_size"),
            ("sequences", self.sequences, self.sequences >= 1, "at least 1"),
            ("anchors", self.anchors, self.anchors >= 1, "at least 1"),
            ("draft_vocab", self.draft_vocab, self.draft_vocab >= 0, "0 (all) or more"),
            ("negatives", self.negatives, self.negatives >= 0, "0 or more"),
            ("loss", self.loss, self.loss in get_args(LossKind), " or ".join(get_args(LossKind))),
            ("lr", self.lr, self.lr > 0, "above 0"),
            ("lr_end", self.lr_end, 0 <= self.lr_end <= 1, "between 0 and 1"),
            ("alpha", self.alpha, 0 <= self.alpha <= 1, "between 0 and 1"),
            ("soft", self.soft, 0 <= self.soft <= 1, "between 0 and 1"),
            ("ema", self.ema, 0 <= self.ema < 1, "0 (off) or below 1"),
            ("steps", self.steps, self.steps >= 1, "at least 1"),
            ("decay_share", self.decay_share, 0 < self.decay_share <= 1, "above 0 and at most 1"),
            ("held_out", self.held_out, self.held_out >= 0 and self.held_out != 1, "0 (none) or at least 2"),
            ("save_every", self.save_every, self.save_every >= 1, "at least 1"),
        ]
        for name, value, good, allowed in rules:
            if not good:
                raise UsageError(f"{name}={value!r} is out of range: it must be {allowed}")

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def same_run(self, saved: dict[str, Any]) -> None:
        """Refuse to go on with settings that would make the checkpoint meaningless."""
        mine = self.to_dict()
        for name in sorted(mine):
            if name not in MAY_CHANGE and saved.get(name) != mine[name]:
                raise UsageError(
                    f"--resume: the checkpoint was trained with {name}={saved.get(name)!r}, now {mine[name]!r}; "
                    "use the same settings or another --out folder"
                )

    def but(self, **changes: Any) -> TrainConfig:
        return replace(self, **changes)


def load_settings(file: Path | None, **flags: Any) -> tuple[TrainConfig, AnswerOptions]:
    """Defaults, then the YAML file, then flags that are not None; ``answers`` in the file holds the settings of the
    answers. Unknown keys and wrong kinds are errors."""
    given = _read_yaml(file) if file is not None else {}
    inner = given.pop("answers", None) or {}
    if not isinstance(inner, dict):
        raise UsageError(f"{file}: answers={inner!r} must hold settings of its own")
    given |= {name: value for name, value in flags.items() if value is not None}
    return _made(TrainConfig, given, file), _made(AnswerOptions, inner, file, "answers.")


def _made(kind: type[T], given: dict[str, Any], file: Path | None, prefix: str = "") -> T:
    hints = get_type_hints(kind)
    unknown = sorted(set(map(str, given)) - set(hints))
    if unknown:
        raise UsageError(f"{file}: unknown setting {prefix}{unknown[0]}; known: {', '.join(sorted(hints))}")
    return kind(**{name: _typed(prefix + name, value, hints[name]) for name, value in given.items()})


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'})") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: not YAML ({' '.join(str(error).split())[:100]})") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(f"{file}: settings are lines of 'name: value', this is a {type(loaded).__name__}")
    return loaded


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Only what cannot be misread is converted: whole numbers to fractions, lists to tuples."""
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint == tuple[int, ...]:
        if isinstance(value, list | tuple) and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            return tuple(value)
    elif hint is LossKind:
        if isinstance(value, str):
            return value
    elif type(value) is hint:
        return value
    wanted = {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text"}
    raise UsageError(f"{name}={value!r} is of the wrong kind: {wanted.get(getattr(hint, '__name__', ''), 'a list')}")
