"""A few requests to an OpenAI-compatible server: bounded, patient with rate limits, and never a key in a message."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from draftproof.errors import UnavailableError, UsageError
from draftproof.proof.runtime.prometheus import Scrape, fetch, parse, shown

_PATIENCE = 60.0  # longest wait that a server may ask for
_RETRIES = 3
_MOST_BYTES = 8 << 20  # of one answer


@dataclass(frozen=True)
class Ask:
    """One chat request. ``thinking``: None leaves the template's default; ``schema``: a JSON schema to follow."""

    prompt: str
    max_tokens: int = 128
    temperature: float = 0.0
    stream: bool = False
    thinking: bool | None = None
    schema: dict[str, Any] | None = None
    logprobs: bool = False

    def body(self, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": self.prompt}],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        if self.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": self.schema}}
        if self.logprobs:
            body |= {"logprobs": True, "top_logprobs": 2}
        return body


@dataclass
class Answer:
    """``error``: one line if there is no whole answer; what arrived until then is kept. ``draft``: (drafted,
    accepted) tokens where the server tells (llama.cpp). ``tops``: per token (text, log-probability, runner-up's)."""

    status: int = 0
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    seconds: float = 0.0
    ttft: float | None = None
    draft: tuple[int, int] | None = None
    tops: list[tuple[str, float, float | None]] = field(default_factory=list)
    error: str | None = None

    @property
    def whole(self) -> str:
        return f"{self.reasoning}\0{self.text}" if self.reasoning else self.text


class Endpoint:
    """``url``: with or without /v1. Raises UsageError for what is no URL."""

    def __init__(self, url: str, *, key: str | None = None, model: str | None = None, timeout: float = 120.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"--endpoint {url}: must begin with http:// or https://")
        self.root = url.rstrip("/").removesuffix("/v1")
        self.name = shown(self.root)
        self._key = key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=httpx.Timeout(timeout, connect=10.0))
        self._model = model
        self.max_model_len: int | None = None  # of the model that was listed, once it is asked for

    def close(self) -> None:
        self._client.close()

    @property
    def model(self) -> str:
        """The name to ask for: as given, else the first one the server lists."""
        if self._model is None:
            self._model = self._first_model()
        return self._model

    def _first_model(self) -> str:
        try:
            response = self._client.get(f"{self.root}/v1/models")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnavailableError(f"--endpoint {self.name}: {_kind(error)}; is the server running there?") from None
        if response.status_code in (401, 403):
            raise UnavailableError(f"--endpoint {self.name}: HTTP {response.status_code}; give --api-key-env VAR")
        listed = _json(response.text)
        data = listed.get("data") if listed else None
        names = [one.get("id") for one in data if isinstance(one, dict)] if isinstance(data, list) else []
        if response.status_code != 200 or not names or not isinstance(names[0], str):
            what = "an HTML page" if response.text.lstrip()[:1] == "<" else f"HTTP {response.status_code}"
            raise UnavailableError(f"--endpoint {self.name}: /v1/models gives {what}, no list of models; give --model")
        limit = listed["data"][0].get("max_model_len") if listed else None
        self.max_model_len = limit if type(limit) is int and limit > 0 else None
        return names[0]

    def metrics(self) -> Scrape | None:
        """The counters, if the server shows any."""
        try:
            scrape = parse(fetch(f"{self.root}/metrics", key=self._key), f"{self.name}/metrics")
        except (UnavailableError, UsageError):
            return None
        return scrape if scrape.samples else None

    def ask(self, ask: Ask) -> Answer:
        """Never raises: an answer that failed says how."""
        for attempt in range(_RETRIES + 1):
            answer, wait = self._once(ask)
            if wait is None or attempt == _RETRIES:
                return answer
            if wait > _PATIENCE:
                answer.error = f"HTTP {answer.status}: the server asks to wait {wait:.0f} s, too long for a probe"
                return answer
            time.sleep(wait if wait > 0 else 2.0**attempt)
        return answer

    def _once(self, ask: Ask) -> tuple[Answer, float | None]:
        """(answer, seconds to wait before another try; 0: not said; None: no other try)."""
        answer = Answer()
        started = time.monotonic()
        try:
            url = f"{self.root}/v1/chat/completions"
            with self._client.stream("POST", url, json=ask.body(self.model)) as response:
                answer.status = response.status_code
                if response.status_code in (429, 503):
                    answer.error = f"HTTP {response.status_code}: the server limits the rate"
                    return answer, _seconds(response.headers.get("retry-after"))
                if ask.stream and response.status_code == 200:
                    _read_stream(response, answer, started)
                else:
                    _read_whole(response, answer)
        except httpx.TimeoutException:
            answer.error = "no answer in time"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            answer.error = _kind(error)
        answer.seconds = time.monotonic() - started
        return answer, None


def _read_whole(response: httpx.Response, answer: Answer) -> None:
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > _MOST_BYTES:
            answer.error = f"more than {_MOST_BYTES >> 20} MB of answer"
            return
    found = _json(body.decode("utf-8", "replace"))
    if found is None:
        html = body.lstrip()[:1] == b"<"
        answer.error = f"HTTP {answer.status}: {'an HTML page' if html else 'no JSON'}"
        return
    if answer.status != 200:
        detail = found.get("error", found)
        message = detail.get("message") if isinstance(detail, dict) else detail
        answer.error = f"HTTP {answer.status}: {' '.join(str(message).split())[:300]}"
        return
    _take(found, "message", answer)


def _read_stream(response: httpx.Response, answer: Answer, started: float) -> None:
    done = False
    for event in _events(response):
        if event == "[DONE]":
            done = True
            break
        found = _json(event)
        if found is None:
            answer.error = "a part of the stream is no JSON"
            return
        if "error" in found:
            answer.error = " ".join(str(found["error"]).split())[:300]
            return
        before = len(answer.whole)
        _take(found, "delta", answer)
        if answer.ttft is None and len(answer.whole) > before:
            answer.ttft = time.monotonic() - started
    if not done and answer.finish_reason is None:
        answer.error = "the stream was cut"


def _events(response: httpx.Response) -> Iterator[str]:
    size = 0
    for line in response.iter_lines():
        size += len(line)
        if size > _MOST_BYTES:
            return
        if line.startswith("data:"):
            yield line[5:].strip()


def _take(found: dict[str, Any], part: str, answer: Answer) -> None:
    """Text, reasons and counts of an answer or of one piece of it; anything of another type is passed over."""
    choices = found.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    said = choice.get(part)
    message: dict[str, Any] = said if isinstance(said, dict) else {}
    answer.text += _text(message.get("content"))
    answer.reasoning += _text(message.get("reasoning_content") or message.get("reasoning"))
    answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    usage = found.get("usage")
    if isinstance(usage, dict):
        answer.prompt_tokens = _count(usage.get("prompt_tokens"), answer.prompt_tokens)
        answer.completion_tokens = _count(usage.get("completion_tokens"), answer.completion_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            answer.cached_tokens = _count(details.get("cached_tokens"), answer.cached_tokens)
    timings = found.get("timings")
    if isinstance(timings, dict) and timings.get("draft_n"):
        answer.draft = (_count(timings["draft_n"], 0) or 0, _count(timings.get("draft_n_accepted"), 0) or 0)
    logprobs = choice.get("logprobs")
    for one in (logprobs.get("content") if isinstance(logprobs, dict) else None) or ():
        tops = sorted((t.get("logprob", -99.0) for t in one.get("top_logprobs", ())), reverse=True)
        answer.tops.append(
            (_text(one.get("token")), float(one.get("logprob", 0.0)), tops[1] if len(tops) > 1 else None)
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any, otherwise: int | None) -> int | None:
    return value if type(value) is int and value >= 0 else otherwise


def _json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(text: str | None) -> float:
    """Of a Retry-After header, which is a number or a date; 0 where it says nothing that can be read."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text or "").timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _kind(error: Exception) -> str:
    """The kind of a failure in words; the message of the library may hold the URL with its key."""
    names = {"ConnectError": "connection refused", "RemoteProtocolError": "the connection was cut"}
    return names.get(type(error).__name__, type(error).__name__)
