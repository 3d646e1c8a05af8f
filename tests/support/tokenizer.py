"""A real byte-level BPE tokenizer, trained in code on a few sentences, of any small vocabulary."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def tiny_tokenizer(vocab: int) -> Any:
    """Every id below ``vocab`` decodes to something; single letters and a few merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    letters = [chr(c) for c in range(33, 127)][: min(vocab - 2, 80)]
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=[*letters, "Ġ"], show_progress=False)
    text = ["the cat and the dog ran over the hill", "there and then the other cat sat on the mat"] * 3
    tokenizer.train_from_iterator(text, trainer)
    assert tokenizer.get_vocab_size() == vocab, tokenizer.get_vocab_size()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
