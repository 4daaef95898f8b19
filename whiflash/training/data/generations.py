"""The target's own text: what it answers to the training prompts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from whiflash.chat.format import ChatFormat
from whiflash.core.errors import ConfigError, InvalidRequestError, ModelError
from whiflash.core.params import GenerationRequest, SamplingParams
from whiflash.core.results import FinishReason
from whiflash.core.results import Generation as EngineGeneration
from whiflash.engine.engine import Engine
from whiflash.engine.ticket import Ticket
from whiflash.training.clock import TimeLimit
from whiflash.training.data.filler import Task
from whiflash.training.data.prompts import TrainingPrompt, training_prompt
from whiflash.training.data.shards import Record, RecordShards
from whiflash.training.files import keep_settings, read_settings

FOLDER: Final = "generations"
_FORMAT: Final = "whiflash-generations-1"
_SHARD_RECORDS: Final = 64
_MAX_WAIT_S: Final = 60.0
SKIPPED: Final = "skipped"
"""Finish reason of a prompt that the target has no room or no template for."""

Render = Callable[[Task], str]
OnAnswer = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """num_prompts: how many; seed: which; max_tokens: of one answer; is_chat: written in the
    model's chat template, or as plain text."""

    num_prompts: int
    seed: int = 0
    max_tokens: int = 256
    is_chat: bool = True


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer. temperature: 0 or 1; finish: stop, length or skipped (no answer then)."""

    number: int
    kind: str
    split: str
    temperature: float
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    finish: str

    @classmethod
    def of_record(cls, record: Record) -> Generation:
        """From a line of a shard."""
        fields = dict(record)
        return cls(**{**fields, "prompt": tuple(fields["prompt"]),
                      "answer": tuple(fields["answer"])})  # fmt: skip

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and answer."""
        return self.prompt + self.answer


class Generations:
    """The answers of one target in `work_dir`/generations, made in batches, resumable.

    On a target whose rows are bitwise invariant a record depends on prompt, seed and target alone,
    so that a resumed folder equals an uninterrupted one byte for byte.
    """

    def __init__(self, work_dir: Path, settings: GenerationSettings, target: str) -> None:
        """target: fingerprint. Raises ConfigError if the folder was begun with other settings."""
        folder = work_dir / FOLDER
        keep_settings(folder, {"format": _FORMAT, "target": target, **asdict(settings)})
        self.settings = settings
        self._shards = RecordShards(folder, settings.num_prompts, _SHARD_RECORDS)

    @property
    def num_done(self) -> int:
        return self._shards.num_records

    def run(self, engine: Engine, render: Render, limit: TimeLimit, on_answer: OnAnswer) -> bool:
        """Answers what is missing until all is there (True) or time is over (False).

        `on_answer` hears of each record: its number of prompt and of answer tokens.
        """
        return _Run(self._shards, self.settings, engine, render, on_answer).until(limit)


class _Run:
    """One sitting: a window of open requests, taken in the order of the prompts."""

    def __init__(
        self,
        shards: RecordShards,
        settings: GenerationSettings,
        engine: Engine,
        render: Render,
        on_answer: OnAnswer,
    ) -> None:
        self._shards, self._settings = shards, settings
        self._engine, self._render, self._on_answer = engine, render, on_answer
        self._missing = shards.missing()
        self._waiting: deque[tuple[TrainingPrompt, Ticket]] = deque()

    def until(self, limit: TimeLimit) -> bool:
        """Whether all is there."""
        while not limit.is_over:
            self._fill_window()
            if not self._waiting:
                return True
            prompt, ticket = self._waiting[0]
            try:
                answer = ticket.result(min(limit.left_s, _MAX_WAIT_S))
            except TimeoutError:
                continue
            self._waiting.popleft()
            self._keep(prompt, answer)
        self._stop()
        return False

    def _fill_window(self) -> None:
        """Twice the batch, so that it stays full while the first one is waited for."""
        while len(self._waiting) < 2 * self._engine.limits.max_batch:
            number = next(self._missing, None)
            if number is None:
                return
            prompt = training_prompt(number, self._settings.seed)
            ids = self._prompt_ids(prompt.task)
            if ids is None:
                self._add(prompt, (), (), SKIPPED)
            else:
                self._waiting.append((prompt, self._engine.submit(self._request(prompt, ids))))

    def _prompt_ids(self, task: Task) -> tuple[int, ...] | None:
        """None where the model's template knows no tools, or its context leaves no room."""
        try:
            ids = tuple(self._engine.tokenizer.encode(self._render(task)))
        except InvalidRequestError:
            return None
        limit = self._engine.core.target.info.context_limit
        return ids if len(ids) + self._settings.max_tokens <= limit else None

    def _request(self, prompt: TrainingPrompt, ids: tuple[int, ...]) -> GenerationRequest:
        params = SamplingParams(
            max_tokens=self._settings.max_tokens, temperature=prompt.temperature, seed=prompt.seed
        )
        return GenerationRequest(ids, params, store=False, shared_drafts=False)

    def _stop(self) -> None:
        """Keeps what is complete; the rest is given up and comes again next time."""
        done = [(prompt, ticket) for prompt, ticket in self._waiting if ticket.is_done]
        for _, ticket in self._waiting:
            ticket.cancel()
        for prompt, ticket in done:
            self._keep(prompt, ticket.result())

    def _keep(self, prompt: TrainingPrompt, answer: EngineGeneration) -> None:
        choice = answer.choices[0]
        if choice.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
            raise ModelError(f"prompt {prompt.number} ended with {choice.finish_reason}: "
                             f"{choice.error or 'the engine was closed'}")  # fmt: skip
        self._add(prompt, answer.prompt_ids, choice.token_ids, str(choice.finish_reason))

    def _add(
        self, prompt: TrainingPrompt, ids: tuple[int, ...], answer: tuple[int, ...], finish: str
    ) -> None:
        found = Generation(
            prompt.number, prompt.kind, prompt.split, prompt.temperature, ids, answer, finish
        )
        self._shards.add(asdict(found))
        self._on_answer(len(ids), len(answer))


def read_generations(work_dir: Path) -> Iterator[Generation]:
    """The answers that are there so far, skipped ones left out. Raises ConfigError."""
    settings = _settings_of(work_dir)
    shards = RecordShards(work_dir / FOLDER, settings["num_prompts"], _SHARD_RECORDS)
    found = (Generation.of_record(record) for record in shards.records())
    return (generation for generation in found if generation.answer)


def require_text(work_dir: Path) -> None:
    """Raises ConfigError unless a shard of text is complete: others are not trained on."""
    _settings_of(work_dir)
    if not any((work_dir / FOLDER).glob("*.jsonl.zst")):
        raise ConfigError(f"{work_dir} holds fewer than {_SHARD_RECORDS} answers, the least that "
                          "is trained on; run `whiflash train data` for longer")  # fmt: skip


def text_seed(work_dir: Path) -> int:
    """The seed that the text's prompts were drawn with. Raises ConfigError."""
    return int(_settings_of(work_dir)["seed"])


def generations_target(work_dir: Path) -> str:
    """Fingerprint of the target that wrote the text in `work_dir`. Raises ConfigError."""
    return str(_settings_of(work_dir)["target"])


def _settings_of(work_dir: Path) -> dict[str, Any]:
    return read_settings(work_dir / FOLDER, "data")


def chat_render(engine: Engine) -> Render:
    """Writes tasks in the engine's chat template."""
    chat = ChatFormat.for_model(engine.model_folder, engine.model_name, engine.config.chat_template)
    return lambda task: chat.render(list(task.messages), list(task.tools) or None) + task.start


def plain_render(task: Task) -> str:
    """Writes tasks as plain paragraphs, for models without a chat template. Raises
    InvalidRequestError on tools, which need one."""
    if task.tools:
        raise InvalidRequestError("a plain prompt has no tools", "tools")
    return "\n\n".join(str(m["content"]) for m in task.messages) + "\n\n" + task.start
