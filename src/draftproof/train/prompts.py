"""Prompts by template: conversation, explanation, writing, code, lists, rewriting, summaries, questions.

A drafter learns the target's own words, so prompts need variety more than quality. Each prompt is a function of
the seed and its index, and none is handed out twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from draftproof.train import prompt_words as w
from draftproof.train.prompt_code import code_request, function_head

Message = dict[str, str]
MIX = (
    ("code-head", 0.30),
    ("code", 0.15),
    ("explain", 0.14),
    ("writing", 0.09),
    ("list", 0.07),
    ("chat", 0.07),
    ("rewrite", 0.04),
    ("summary", 0.04),
    ("question", 0.04),
    ("reading", 0.03),
    ("translate", 0.03),
)
_TRIES = 200


def template_prompts(count: int, seed: int = 0, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """``count`` different (kind, text) pairs; ``kinds`` empty: all of them in the proportions of ``MIX``.

    Stops early when the templates yield nothing new.
    """
    chosen = [(k, share) for k, share in MIX if not kinds or k in kinds]
    rng = random.Random(seed)
    seen: set[str] = set()
    for _ in range(count):
        for _attempt in range(_TRIES):
            kind = rng.choices([k for k, _ in chosen], [share for _, share in chosen])[0]
            text = _MAKERS[kind](rng)
            if text not in seen:
                break
        else:
            return
        seen.add(text)
        yield kind, text


def _topic(rng: random.Random) -> str:
    return rng.choice(w.SCIENCE + w.SOCIETY)


def _explain(rng: random.Random) -> str:
    topic, other = _topic(rng), _topic(rng)
    who = rng.choice(
        ("a child", "a beginner", "a high-school student", "a curious adult", "my grandmother", "a friend")
    )
    return rng.choice(
        (
            f"Explain {topic} to {who}.",
            f"What is the main idea behind {topic}, and why does it matter?",
            f"Describe {topic} in three short paragraphs.",
            f"What are common misunderstandings about {topic}?",
            f"Compare {topic} with {other}. What do they have in common?",
            f"How would you teach {topic} in a lesson of twenty minutes?",
            f"Give a simple example from everyday life that illustrates {topic}.",
            f"What are the advantages and disadvantages of what we know as {topic}?",
            f"What questions about {topic} are still open?",
            f"Can you summarise {topic} in about {rng.choice((50, 80, 100, 150))} words?",
            f"Discuss how {topic} has changed the way people live.",
            f"How is {topic} connected to {other}?",
            f"Explain the key terms someone needs to know to understand {topic}.",
        )
    )


def _writing(rng: random.Random) -> str:
    who, place, thing = rng.choice(w.CHARACTERS), rng.choice(w.PLACES), rng.choice(w.THINGS)
    name, topic = rng.choice(w.NAMES), _topic(rng)
    mood = rng.choice(("funny", "sad", "mysterious", "hopeful", "calm", "exciting"))
    return rng.choice(
        (
            f"Write a {mood} short story about {who} in {place}.",
            f"Write a poem about {who} who comes to {place}.",
            f"Write a short email to {name} about {thing}.",
            f"Write the opening paragraph of a novel set in {place}. The main character is {who}.",
            f"Write a dialogue between {who} and {rng.choice(w.CHARACTERS)} about {topic}.",
            f"Draft a friendly letter to {name} with advice on {thing}.",
            f"Write a {mood} blog post about {thing}.",
            f"Write an essay of about 200 words about {topic}.",
            f"Describe {place} so that the reader can hear and smell it.",
            f"Write a product description for something that helps with {thing}.",
            f"Write a short speech about {topic} for a school audience.",
            f"Write a news report: {rng.choice(w.EVENTS)} in {rng.choice(w.TOWNS)}.",
        )
    )


def _list(rng: random.Random) -> str:
    n = rng.randint(3, 10)
    thing, topic = rng.choice(w.THINGS), _topic(rng)
    return rng.choice(
        (
            f"List {n} tips for {thing}.",
            f"Give me {n} ideas for {thing}.",
            f"Make a checklist for {thing}.",
            f"List {n} facts about {topic}.",
            f"What are the {n} most important things to know about {topic}?",
            f"Make a step-by-step plan for {thing}.",
            f"Write a table of contents for a book about {topic}.",
            f"Name {n} questions you could ask an expert on {topic}.",
            f"Suggest {n} titles for an article on {topic}.",
            f"Create an outline with {n} points for a talk about {thing}.",
        )
    )


def _chat(rng: random.Random) -> str:
    thing, topic, name = rng.choice(w.THINGS), _topic(rng), rng.choice(w.NAMES)
    return rng.choice(
        (
            f"I am nervous about {thing}. What should I do?",
            f"Can you help me with {thing}?",
            f"My friend {name} wants to know more about {topic}. Where should we start?",
            f"What do you think about {topic}?",
            f"I have only {rng.randint(2, 9)} days for {thing}. How should I plan?",
            f"Pretend you are {rng.choice(w.CHARACTERS)} and tell me about your day in {rng.choice(w.PLACES)}.",
            f"Act as a teacher of {topic} and ask me three questions. Then give the answers.",
            f"{name} and I disagree about {topic}. What are the arguments on both sides?",
            f"Is it worth spending money on {thing}? Give reasons.",
            f"Recommend something for {thing} and explain your choice.",
            f"What would happen if nobody cared about {topic} any more?",
        )
    )


def _rewrite(rng: random.Random) -> str:
    text = " ".join(rng.sample(w.ROUGH, rng.randint(1, 3)))
    how = rng.choice(
        (
            "so that it is polite and clear",
            "in formal English",
            "in simple words",
            "as a short email",
            "in one sentence",
            "with correct grammar",
            "so that it sounds enthusiastic",
            "as a note to a colleague",
        )
    )
    return rng.choice((f'Rewrite this message {how}: "{text}"', f"Please rewrite the following {how}.\n\n{text}"))


def _article(rng: random.Random) -> str:
    """A made-up news text of a few paragraphs."""
    parts = []
    for _ in range(rng.randint(2, 4)):
        parts.append(f"In {rng.choice(w.TOWNS)}, {rng.choice(w.EVENTS)}. " + " ".join(rng.sample(w.DETAILS, 3)))
        if rng.random() < 0.6:
            parts[-1] += f' "We did not expect this," said {rng.choice(w.NAMES)}, who lives nearby.'
    return " ".join(parts)


def _summary(rng: random.Random) -> str:
    ask = rng.choice(
        (
            "Summarize: {0}",
            "Summarise the following text in two sentences.\n\n{0}",
            "{0}\n\nGive the main points as a list.",
            "Write a headline and a one-sentence summary for this text: {0}",
        )
    )
    return ask.format(_article(rng))


def _filled(template: str, rng: random.Random) -> str:
    return template.format(
        town=rng.choice(w.TOWNS),
        name=rng.choice(w.NAMES),
        n=rng.randint(3, 90),
        y=rng.randint(10, 99),
        d=rng.randint(2, 12),
        m=rng.choice(w.MONTHS),
    )


def _question(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(w.SHORT_QUESTIONS).format(x=rng.choice(w.OBJECTS))
    topic = _topic(rng)
    return rng.choice(
        (
            f"Who first studied {topic}?",
            f"When did people first learn about {topic}?",
            f"What is {topic}?",
            f"Why do we have {topic}?",
            f"Where can I see {topic} in action?",
        )
    )


def _reading(rng: random.Random) -> str:
    facts = [_filled(fact, rng) for fact in rng.sample(w.FACTS, rng.randint(4, 7))]
    ask = rng.choice(
        (
            "What does the text say about the history of the place?",
            "Which numbers are mentioned, and what do they mean?",
            "Who is mentioned in the text, and why?",
            "What can a visitor see there?",
            "Answer in full sentences: when and where?",
        )
    )
    return f"{' '.join(facts)}\n\nQuestion: {ask}"


def _translate(rng: random.Random) -> str:
    text = " ".join(_filled(s, rng) for s in rng.sample(w.GERMAN, rng.randint(1, 2)))
    return rng.choice(
        ("Translate German to English: {}", "Translate into English: {}", "What does this mean? {}")
    ).format(text)


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "code-head": function_head,
    "code": code_request,
    "explain": _explain,
    "writing": _writing,
    "list": _list,
    "chat": _chat,
    "rewrite": _rewrite,
    "summary": _summary,
    "question": _question,
    "reading": _reading,
    "translate": _translate,
}
