"""Streaming text equals the decode of everything at once; stops do not depend on how pushes are grouped."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from draftproof.engine.detokenize import IncrementalDetokenizer

CORPUS = [
    "def main():\n    return 'naïve café'\n\n",
    "  leading spaces,  and   runs. Isn't it?",
    "日本語のテキスト、漢字とかな。中文字符",
    "👩‍👩‍👧‍👦 🏳️‍🌈 😀😃😄 e\u0301 a\u0308\u0323 ก็ नमस्ते",
    "The end.<stop> STOP Human: END",
]


@cache
def byte_level():
    """As in GPT-2, Qwen, Llama 3: bytes shown as letters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True), AddedToken("<|start|>", special=True)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return tokenizer


def sentencepiece_like(decoder):
    words = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    words += ["▁", "▁▁", "▁▁▁▁", "▁The", "▁end", "ing", ".", ",", "▁a", "a", "e", "\u0301", "é", "日", "本"]
    words += ["▁日", "<", "stop"]
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    return tokenizer


@cache
def llama():
    """Llama 2, Mistral, Gemma: bytes for unknown characters; one leading space is dropped."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return sentencepiece_like(decoders.Sequence(steps))


@cache
def stripping():
    """More of the beginning is dropped than one token may hold."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 3, 0)]
    return sentencepiece_like(decoders.Sequence(steps))


@cache
def metaspace():
    return sentencepiece_like(decoders.Metaspace())


@cache
def wrapped():
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), eos_token="<|end|>", clean_up_tokenization_spaces=True
    )


KINDS = {
    "byte level": byte_level,
    "llama": llama,
    "stripping": stripping,
    "metaspace": metaspace,
    "transformers": wrapped,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def size(tokenizer):
    return tokenizer.get_vocab_size() if isinstance(tokenizer, Tokenizer) else len(tokenizer)


def one_shot(tokenizer, ids, skip=True):
    options = {} if isinstance(tokenizer, Tokenizer) else {"clean_up_tokenization_spaces": False}
    return tokenizer.decode(ids, skip_special_tokens=skip, **options)


def grouped(ids, cuts):
    bounds = [0, *sorted(c % (len(ids) + 1) for c in cuts), len(ids)]
    return [ids[a:b] for a, b in pairwise(bounds)]


def stream(detokenizer, groups):
    """Text, tokens used and stop string of one answer, as the round loop collects them."""
    text, used = "", 0
    for group in groups:
        delta = detokenizer.push(group)
        text, used = text + delta.text, used + delta.tokens_used
        if delta.stopped:
            assert detokenizer.push([0]).tokens_used == 0 and detokenizer.flush() == ""
            return text, used, delta.stopped
        assert delta.tokens_used == len(group)
    return text + detokenizer.flush(), used, None


def expected(tokenizer, ids, stops):
    """By definition: the first token after which decoded text holds a stop string, cut at the leftmost."""
    for n in range(1, len(ids) + 1):
        text = one_shot(tokenizer, ids[:n]).rstrip("\ufffd")
        hits = [(text.find(s), s) for s in stops if s in text]
        if hits:
            at, stop = min(hits, key=lambda hit: hit[0])
            return text[:at], n, stop
    return one_shot(tokenizer, ids), len(ids), None


# Parts of characters, spaces and words are made common, so that they meet. 259: first after byte tokens.
def id_lists(kind, max_size=40):
    tokenizer = KINDS[kind]()
    anything = st.one_of(st.integers(0, size(tokenizer) - 1), st.integers(259, size(tokenizer) - 1))
    texts = st.sampled_from(["😀", "é", "日", " ", "a", "漢字", "  ", "\n", "e\u0301", " The end", "👩‍👩‍👧‍👦"]).map(
        lambda text: (
            tokenizer.encode(text).ids
            if isinstance(tokenizer, Tokenizer)
            else tokenizer.encode(text, add_special_tokens=False)
        )
    )
    return st.lists(st.one_of(anything.map(lambda i: [i]), texts), max_size=max_size).map(
        lambda parts: [i for part in parts for i in part]
    )


cuts = st.lists(st.integers(0, 1000), max_size=8)
stop_lists = st.lists(
    st.sampled_from(["a", "The", "end.", "aa", " a", "😀", "日本", "é", "  ", "\n\n", "e\u0301", "<stop", "ab"]),
    max_size=3,
)


@every_kind
@settings(deadline=None, max_examples=250)
@given(data=st.data(), cuts=cuts, skip=st.booleans())
def test_deltas_add_up_to_the_one_shot_decode(kind, data, cuts, skip):
    tokenizer, ids = KINDS[kind](), data.draw(id_lists(kind))
    text, used, _ = stream(IncrementalDetokenizer(tokenizer, (), skip), grouped(ids, cuts))
    assert text == one_shot(tokenizer, ids, skip)
    assert used == len(ids)


@every_kind
@settings(deadline=None, max_examples=250)
@given(data=st.data(), cuts=cuts, stops=stop_lists)
def test_stops_are_where_the_definition_puts_them_for_any_grouping(kind, data, cuts, stops):
    tokenizer, ids = KINDS[kind](), data.draw(id_lists(kind, max_size=25))
    result = expected(tokenizer, ids, stops)
    assert stream(IncrementalDetokenizer(tokenizer, stops), grouped(ids, cuts)) == result
    assert stream(IncrementalDetokenizer(tokenizer, stops), [[i] for i in ids]) == result


@every_kind
@settings(deadline=None, max_examples=150)
@given(data=st.data(), stops=stop_lists)
def test_what_was_sent_is_never_taken_back(kind, data, stops):
    """At each moment, sent text is a beginning of whatever the answer becomes."""
    tokenizer, ids = KINDS[kind](), data.draw(id_lists(kind, max_size=15))
    final, used, _ = expected(tokenizer, ids, stops)
    detokenizer, sent = IncrementalDetokenizer(tokenizer, stops), ""
    for token in ids[:used]:
        sent += detokenizer.push([token]).text
        assert final.startswith(sent)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=60))
@example("👩‍👩‍👧‍👦" * 5)
@example("e\u0301" * 10)
def test_any_text_survives(text):
    tokenizer = byte_level()
    assert stream(IncrementalDetokenizer(tokenizer), [[i] for i in tokenizer.encode(text).ids])[0] == text


def test_ordinary_text_is_sent_at_once():
    tokenizer, sent = byte_level(), ""
    ids = tokenizer.encode("The end of a café, isn't it? 日本").ids
    detokenizer = IncrementalDetokenizer(tokenizer, ["STOP"])
    for n, token in enumerate(ids, start=1):
        sent += detokenizer.push([token]).text
        whole = one_shot(tokenizer, ids[:n])
        assert sent == whole or whole.endswith("\ufffd")


def test_half_characters_wait_for_their_other_half():
    tokenizer = llama()
    ids = [tokenizer.token_to_id(f"<0x{b:02X}>") for b in "😀".encode()]
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert detokenizer.push(ids).text == ""  # one more byte could still spoil the run
    assert detokenizer.push([tokenizer.token_to_id("a")]).text == "😀a"


def test_an_unfinished_character_comes_out_at_the_end():
    tokenizer = byte_level()
    ids = tokenizer.encode("a😀").ids[:-1]
    assert stream(IncrementalDetokenizer(tokenizer), [ids])[0] == one_shot(tokenizer, ids) == "a\ufffd"


def test_nothing_after_a_stop_inside_one_push_is_sent():
    tokenizer = byte_level()
    ids = tokenizer.encode("one END two END").ids
    delta = IncrementalDetokenizer(tokenizer, ["END"]).push(ids)
    assert (delta.text, delta.stopped) == ("one ", "END")
    assert "END" in tokenizer.decode(ids[: delta.tokens_used])
    assert "END" not in tokenizer.decode(ids[: delta.tokens_used - 1])


def test_the_start_of_a_stop_string_is_held_back_and_released_when_it_turns_out_otherwise():
    tokenizer = llama()
    token = tokenizer.token_to_id
    detokenizer = IncrementalDetokenizer(tokenizer, ["<stop."])
    assert detokenizer.push([token("a"), token("<")]).text == "a"
    assert detokenizer.push([token("stop")]).text == ""
    assert detokenizer.push([token(",")]).text == "<stop,"
    assert detokenizer.push([token("<")]).text == ""
    assert detokenizer.flush() == "<"


def test_special_tokens_between_the_halves_of_a_character_do_not_part_them():
    tokenizer = byte_level()
    first, *rest = (tokenizer.token_to_id(letter) for letter in "ðŁĺĢ")  # the four bytes of 😀
    ids = [first, tokenizer.token_to_id("<|end|>"), *rest]
    assert stream(IncrementalDetokenizer(tokenizer), [[i] for i in ids])[0] == "😀"


def test_special_tokens_inside_a_run_of_byte_tokens_do_not_end_it():
    tokenizer = llama()
    emoji = [tokenizer.token_to_id(f"<0x{b:02X}>") for b in "😀".encode()]
    ids = [*emoji, tokenizer.token_to_id("</s>"), emoji[0]]
    assert stream(IncrementalDetokenizer(tokenizer), [[i] for i in ids])[0] == "\ufffd" * 5


def test_the_leftmost_of_several_stops_in_one_token_counts():
    tokenizer = llama()
    ids = [tokenizer.token_to_id("a"), tokenizer.token_to_id("▁end")]
    assert stream(IncrementalDetokenizer(tokenizer, ["d", "en", "nd"]), [ids]) == ("a ", 2, "en")


def test_tokens_that_always_end_inside_a_character_lose_nothing():
    letters = ["ð", "Ł", "ĺ", "Ģ", "ðŁ", "ĺĢ", "ĺĢðŁ"]
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    ids = [4, *[6] * 150, 5]
    assert stream(IncrementalDetokenizer(tokenizer), [[i] for i in ids])[0] == "😀" * 151


def test_stop_strings_are_ignored_within_min_tokens():
    tokenizer = llama()
    ids = [tokenizer.token_to_id(t) for t in ("a", ".", "e", ".", "a")]
    assert stream(IncrementalDetokenizer(tokenizer, ["."], min_tokens=2), [ids]) == ("a.e", 4, ".")
    assert stream(IncrementalDetokenizer(tokenizer, ["."], min_tokens=0), [ids]) == ("a", 2, ".")


@pytest.mark.parametrize("kind,unit,most", [("valid", "The end. 日本語 😀 ", 12), ("invalid", "Ģ", 300)])
def test_cost_grows_linearly(kind, unit, most):
    """Counted in tokens decoded per token pushed. Invalid: nothing but the lone continuation byte 0x80."""
    tokenizer = byte_level()
    ids = tokenizer.encode(unit).ids if kind == "valid" else [tokenizer.token_to_id(unit)]
    costs = []
    for n in (500, 2000):
        counter, answer = Counting(tokenizer), (ids * n)[:n]
        assert stream(IncrementalDetokenizer(counter), [[i] for i in answer])[0] == tokenizer.decode(answer)
        costs.append(counter.tokens / n)
    assert costs[1] < 1.2 * costs[0] + 1
    assert costs[1] < most


class Counting:
    """A tokenizer that counts the tokens it is asked to decode."""

    def __init__(self, tokenizer):
        self.tokenizer, self.tokens = tokenizer, 0
        self.id_to_token = tokenizer.id_to_token

    def decode(self, ids, skip_special_tokens):
        self.tokens += len(ids)
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
