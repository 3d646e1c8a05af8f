"""Tasks on words, text and mappings for programming prompts. Written for this package."""

from __future__ import annotations

from draftproof.train.prompt_numbers import Task


def _runs(text: str) -> list:
    out: list = []
    for c in text:
        if out and out[-1][0] == c:
            out[-1] = (c, out[-1][1] + 1)
        else:
            out.append((c, 1))
    return out


TEXT_TASKS = (
    Task(
        "count_vowel_words(words: List[str]) -> int",
        "count the words that start with a vowel",
        "w",
        lambda w: sum(x[0] in "aeiou" for x in w),
    ),
    Task(
        "longest_words(words: List[str]) -> List[str]",
        "return all words that have the greatest length",
        "w",
        lambda w: [x for x in w if len(x) == max(map(len, w))],
    ),
    Task(
        "initials(words: List[str]) -> str",
        "return the first letters of the words as one upper-case string",
        "w",
        lambda w: "".join(x[0].upper() for x in w),
    ),
    Task(
        "group_by_length(words: List[str]) -> Dict[int, List[str]]",
        "map each word length to the list of words of that length",
        "w",
        lambda w: {n: [x for x in w if len(x) == n] for n in dict.fromkeys(map(len, w))},
    ),
    Task(
        "word_lengths(words: List[str]) -> Dict[str, int]",
        "return a dictionary from each word to its number of letters",
        "w",
        lambda w: {x: len(x) for x in w},
    ),
    Task(
        "join_with_commas(words: List[str]) -> str",
        "join the words with commas and put 'and' before the last one",
        "w",
        lambda w: ", ".join(w[:-1]) + " and " + w[-1],
    ),
    Task(
        "words_with_letter(words: List[str], letter: str) -> List[str]",
        "return the words that contain the given letter",
        "wc",
        lambda w, c: [x for x in w if c in x],
    ),
    Task(
        "sort_by_last_letter(words: List[str]) -> List[str]",
        "sort the words by their last letter; words with the same last letter keep their order",
        "w",
        lambda w: sorted(w, key=lambda x: x[-1]),
    ),
    Task(
        "total_letters(words: List[str]) -> int",
        "return how many letters all words have together",
        "w",
        lambda w: sum(map(len, w)),
    ),
    Task(
        "mirror_words(words: List[str]) -> List[str]",
        "reverse the letters of every word, but leave the words in their order",
        "w",
        lambda w: [x[::-1] for x in w],
    ),
    Task(
        "shorten(text: str, width: int) -> str",
        "cut the text to the given width and add three dots if something was cut",
        "tn",
        lambda t, n: t if len(t) <= n else t[:n] + "...",
    ),
    Task(
        "swap_halves(text: str) -> str",
        "exchange the first and the second half of the text",
        "t",
        lambda t: t[len(t) // 2 :] + t[: len(t) // 2],
    ),
    Task(
        "letter_counts(text: str) -> Dict[str, int]",
        "count how often each letter occurs, ignoring spaces",
        "t",
        lambda t: {c: t.count(c) for c in dict.fromkeys(t) if c != " "},
    ),
    Task(
        "title_each(text: str) -> str",
        "write every word of the text with a capital first letter",
        "t",
        lambda t: t.title(),
    ),
    Task(
        "remove_letter(text: str, letter: str) -> str",
        "return the text without any occurrence of the letter",
        "tc",
        lambda t, c: t.replace(c, ""),
    ),
    Task(
        "double_letters(text: str) -> str",
        "repeat every character of the text once",
        "t",
        lambda t: "".join(c * 2 for c in t),
    ),
    Task(
        "snake_to_camel(name: str) -> str",
        "turn a name with underscores into camel case",
        "u",
        lambda t: t.split("_")[0] + "".join(p.title() for p in t.split("_")[1:]),
    ),
    Task(
        "dashes_for_spaces(text: str) -> str",
        "replace each space by a dash and use lower case everywhere",
        "t",
        lambda t: t.lower().replace(" ", "-"),
    ),
    Task(
        "run_lengths(text: str) -> List[Tuple[str, int]]",
        "return each run of equal characters with its length",
        "r",
        _runs,
    ),
    Task("last_word(text: str) -> str", "return the last word of a sentence", "t", lambda t: t.split()[-1]),
    Task(
        "words_backwards(text: str) -> str",
        "return the sentence with its words in reverse order",
        "t",
        lambda t: " ".join(t.split()[::-1]),
    ),
    Task(
        "pad_left(text: str, width: int, fill: str) -> str",
        "put the fill character in front until the text has the given width",
        "rnc",
        lambda t, n, c: t.rjust(n, c),
    ),
    Task(
        "invert_mapping(mapping: Dict[str, int]) -> Dict[int, str]",
        "exchange keys and values of the mapping",
        "p",
        lambda p: {v: k for k, v in p.items()},
    ),
    Task(
        "best_key(mapping: Dict[str, int]) -> str",
        "return the key with the largest value",
        "p",
        lambda p: max(p, key=lambda k: p[k]),
    ),
    Task(
        "keys_above(mapping: Dict[str, int], limit: int) -> List[str]",
        "return the sorted keys whose value is greater than the limit",
        "pn",
        lambda p, k: sorted(x for x in p if p[x] > k),
    ),
    Task(
        "total_price(prices: Dict[str, int], bought: List[str]) -> int",
        "add up the prices of everything that was bought",
        "pk",
        lambda p, b: sum(p.get(x, 0) for x in b),
    ),
)
