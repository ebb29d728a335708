"""What a user of the models does: asks a host's front over TLS with the gateway key, pinned to what the host signed."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field

import httpx

from examples.demo.stage import NotReal
from gridops.trust.tls import pinned_client_context


@dataclass(frozen=True, slots=True)
class Front:
    """One host's door to its models. Address and certificate are those that the host signed for (`tls-binding`)."""

    url: str
    certificate: str
    key: str

    def tls(self) -> ssl.SSLContext:
        """A context that accepts exactly this certificate."""
        return pinned_client_context((self.certificate,))

    def headers(self, *, with_key: bool) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if with_key else {}

    def ask(self, model: str, question: str, *, with_key: bool = True, tokens: int = 24) -> httpx.Response:
        """One chat completion."""
        with httpx.Client(verify=self.tls(), timeout=60, trust_env=False) as client:
            return client.post(
                f"{self.url}/v1/chat/completions",
                headers=self.headers(with_key=with_key),
                json={
                    "model": model,
                    "messages": [{"role": "user", "content": question}],
                    "max_tokens": tokens,
                    "temperature": 0,
                },
            )


def text_of(answer: httpx.Response) -> str:
    """The text of a completion. Raises NotReal for anything else."""
    if answer.status_code != 200:
        raise NotReal(f"the front answered {answer.status_code}: {answer.text[:300]}")
    return str(answer.json()["choices"][0]["message"]["content"]).strip()


@dataclass
class Stream(threading.Thread):
    """A streamed completion that runs while other things happen. `done` says that the server ended it properly."""

    front: Front
    model: str
    tokens: int = 400
    text: str = ""
    done: bool = False
    error: str = ""
    started: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "Tell a long story about a lighthouse keeper."}],
            "max_tokens": self.tokens,
            "temperature": 0,
            "stream": True,
            "ignore_eos": True,
        }
        try:
            with (
                httpx.Client(verify=self.front.tls(), timeout=60, trust_env=False) as client,
                client.stream(
                    "POST",
                    f"{self.front.url}/v1/chat/completions",
                    headers=self.front.headers(with_key=True),
                    json=body,
                ) as answer,
            ):
                for line in answer.iter_lines():
                    self._line(line)
        except httpx.HTTPError as error:
            self.error = f"{type(error).__name__}: {error}"

    def _line(self, line: str) -> None:
        if not line.startswith("data:"):
            return
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self.done = True
            return
        choices = json.loads(data).get("choices") or [{}]
        self.text += choices[0].get("delta", {}).get("content") or ""
        self.started.set()
