"""Questions and small writing tasks."""

from __future__ import annotations

from typing import Final

from whiflash.training.data.filler import Filler, Task, Template
from whiflash.training.data.phrases import SITUATIONS, TOPICS
from whiflash.training.data.pools import ADJECTIVES, ANIMALS, CITIES, NAMES, PRODUCTS


def _explain(f: Filler) -> Task:
    opening = f.one_of("Explain", "Describe briefly", "Tell me", "Can you explain", "I wonder")
    manner = f.one_of("in simple words", "in three sentences", "to a ten-year-old", "with an "
                      "example", "in one paragraph", "as a short list")  # fmt: skip
    return Task.ask(f"{opening} {f.pick(TOPICS)}, {manner}.")


def _advice(f: Filler) -> Task:
    ask = f.one_of("Give me five tips for", "What should I think of for", "How do I prepare for",
                   "Write a short checklist for", "What can go wrong with")  # fmt: skip
    return Task.ask(f"{ask} {f.pick(SITUATIONS)}.")


def _story(f: Filler) -> Task:
    hero = f"a {f.pick(ADJECTIVES)} {f.pick(ANIMALS)}"
    place = f.one_of("by a lake", "in a big city", "on a farm", "in the mountains", "on a ship")
    return Task.ask(f"Write a short story about {hero} {place}. Keep it under "
                    f"{f.one_of('100', '150', '200')} words.")  # fmt: skip


def _letter(f: Filler) -> Task:
    sender, receiver = f.some(NAMES, 2)
    kind = f.one_of("a polite email", "a friendly letter", "a short message", "a formal note")
    return Task.ask(f"Write {kind} from {sender} to {receiver} about {f.pick(SITUATIONS)}.")


def _advert(f: Filler) -> Task:
    kind = f.one_of("a product description", "three advertising slogans", "a customer review",
                    "an honest test report", "a short advert")  # fmt: skip
    return Task.ask(f"Write {kind} for a {f.pick(PRODUCTS)} made in {f.pick(CITIES)}.")


def _compare(f: Filler) -> Task:
    first, second = f.some(PRODUCTS, 2)
    return Task.ask(f"Which is the better present for {f.pick(NAMES)}, a {first} or a {second}? "
                    "Name two reasons for each and decide.")  # fmt: skip


def _travel(f: Filler) -> Task:
    city, days = f.pick(CITIES), f.one_of("one day", "two days", "three days", "a week")
    who = f.one_of("a family", "two friends", "a student", "an older couple")
    return Task.ask(f"Plan {days} in {city} for {who}.")


def _dialogue(f: Filler) -> Task:
    first, second = f.some(NAMES, 2)
    return Task.ask(f"Write a dialogue of six lines between {first} and {second} about "
                    f"{f.pick(TOPICS)}.")  # fmt: skip


def _summary(f: Filler) -> Task:
    who, city, product = f.pick(NAMES), f.pick(CITIES), f.pick(PRODUCTS)
    hour, price = f.number(7, 20), f.number(5, 90)
    text = (
        f"On Monday {who} drove to {city} to buy a {product}. The shop opened at {hour} o'clock, "
        f"an hour later than the sign said. {who} waited in a cafe, wrote two letters and then "
        f"paid {price} euros for the {product}. On the way home it began to snow, so the drive "
        f"took twice as long as planned."
    )
    ask = f.one_of(
        "Summarise this text in one sentence.",
        "What are the key points of this text?",
        "Retell this text in the first person.",
        "Give this text a title and a summary.",
    )
    return Task.ask(f"{ask}\n\n{text}")


def _role(f: Filler) -> Task:
    system = f.one_of(
        "You are a helpful assistant that answers in short sentences.",
        "You are a librarian. You answer politely and precisely.",
        "You are an experienced engineer who explains with examples.",
        "Answer with bullet points only.",
    )
    return Task.ask(f"What should everybody know about {f.pick(TOPICS)}?", system=system)


def _follow_up(f: Filler) -> Task:
    topic, animal = f.pick(TOPICS), f.pick(ANIMALS)
    turns = (
        {"role": "user", "content": f"Hello, I am {f.pick(NAMES)}. I like {animal}s."},
        {"role": "assistant", "content": f"Nice to meet you! A {animal} is a good choice."},
        {"role": "user", "content": f"{f.one_of('Now tell me', 'Next question:')} {topic}?"},
    )
    return Task(turns)


def _poem(f: Filler) -> Task:
    form = f.one_of("a poem of eight lines", "a haiku", "a limerick", "a song with two verses")
    return Task.ask(f"Write {form} about a {f.pick(ANIMALS)} and a {f.pick(PRODUCTS)}.")


TEMPLATES: Final[tuple[Template, ...]] = (
    _explain, _explain, _advice, _story, _letter, _advert, _compare, _travel, _dialogue, _summary,
    _role, _follow_up, _poem,
)  # fmt: skip
