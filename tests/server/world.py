"""A tiny seeded target with a chat template and a drafter that is partly right, served on a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from transformers import AutoModelForCausalLM, LlamaConfig

from draftproof import Engine
from draftproof.server.app import make_app
from draftproof.server.options import ServerOptions
from draftproof.server.serving import DrainingServer, bind, url_of
from support.tokenizer import tiny_tokenizer

VOCAB = 256
END = 0
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def byte_tokenizer() -> Any:
    """Byte-level: every text can be written, tokens may be halves of characters; id 0 ends an answer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<end>": END} | {sign: i for i, sign in enumerate(signs, start=1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    made.chat_template = TEMPLATE
    return made


def tiny_target(tokenizer: Any, *, seed: int = 0, max_position: int = 2048) -> Any:
    import torch

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=max_position,
        eos_token_id=END,
        bos_token_id=None,
        pad_token_id=None,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().requires_grad_(False)


class Echo:
    """A drafter that is right about two thirds of the time: it runs the target itself, and spoils some tokens."""

    name = "echo"
    tap_layers = ()
    kv_shapes = ()
    max_position = None
    num_draft_tokens = 5

    def __init__(self, model: Any, vocab: int) -> None:
        self._model, self._vocab = model, vocab

    def observe(self, pool: Any, committed: Any, taps: Any) -> None:
        pass

    def propose(self, pool: Any, requests: Any) -> list[Any]:
        return [self._draft(list(r.token_ids), r.count) for r in requests]

    def _draft(self, ids: list[int], count: int) -> Any:
        import torch

        from draftproof.drafters.base import Draft

        rows = []
        with torch.inference_mode():
            for _ in range(count):
                row = self._model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].clone()
                if (len(ids) * 7919 + ids[-1]) % 3 == 0:
                    row = row.roll(1)
                rows.append(row)
                ids.append(int(row.argmax()))
        return Draft(logits=torch.stack(rows)) if rows else Draft()


def tiny_engine(drafter: str | None = None, *, tokenizer: Any = None, **options: Any) -> Engine:
    """``drafter``: None, ``chain`` or ``tree``, always drafting all it can."""
    tokenizer = tokenizer or byte_tokenizer()
    model = tiny_target(tokenizer)
    options.setdefault("kv_cache_gb", 0.02)
    options.setdefault("max_model_len", 1024)
    if drafter is None:
        return Engine.from_model(model, tokenizer, None, **options)
    if drafter == "chain":
        options.setdefault("draft_sample_method", "greedy")  # a seed gives one text
    double = tiny_target(tokenizer)
    return Engine.from_model(
        model, tokenizer, lambda t: Echo(double, len(tokenizer)), method=drafter, length_policy="fixed", **options
    )


class Served:
    """A running server: ``url``, and small helpers to talk to it."""

    def __init__(self, engine: Engine, options: ServerOptions) -> None:
        self.app = make_app(engine, options)
        self.service = self.app.state.service
        self._listening: socket.socket = bind(options)
        self.url = url_of(self._listening)
        self.ready = threading.Event()
        config = uvicorn.Config(
            self.app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=int(options.drain_s)
        )
        self.server = DrainingServer(config, self.app, self.ready.set)
        self.thread = threading.Thread(target=self.server.run, args=([self._listening],), daemon=True)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
        return ask(self.url, "POST", path, body, headers)

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], Any]:
        return ask(self.url, "GET", path, None, headers)

    def chat(self, **body: Any) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 40} | body
        status, _, told = self.post("/v1/chat/completions", body)
        assert status == 200, told
        return dict(told)

    def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        status, _, raw = self.post(path, body | {"stream": True})
        assert status == 200, raw
        lines = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]


def ask(url: str, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
    import http.client

    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    sent = ({"Content-Type": "application/json"} if body is not None else {}) | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    try:
        connection.request(method, path, raw, sent)
        response = connection.getresponse()
        text = response.read().decode()
        kind = response.headers.get("content-type", "")
        return (
            response.status,
            dict(response.headers.items()),
            json.loads(text) if kind.startswith("application/json") else text,
        )
    finally:
        connection.close()


@contextmanager
def served(engine: Engine, **options: Any) -> Iterator[Served]:
    given = {"port": 0, "drain_s": 5.0, "served_model_name": "tiny"} | options
    server = Served(engine, ServerOptions(**given))
    server.thread.start()
    assert server.ready.wait(20)
    try:
        yield server
    finally:
        server.server.should_exit = True
        server.thread.join(30)
        assert not server.thread.is_alive()


def wait_until(true: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return bool(true())


__all__ = ["Served", "served", "tiny_engine", "tiny_tokenizer", "wait_until"]
