"""A valid llama model of half a megabyte with random weights: loads in 40 ms, answers any chat with noise.

Deterministic for a seed, so that its SHA-256 can be named in profiles. The text it makes is meaningless: assert on
structure, never on words. `context` 65536 with a long `max_tokens` and `ignore_eos` gives requests that last.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "the a fox ran over quick brown dog and then it was said to be in of for on with as"


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the model is. The defaults give 466 kB."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    inner: int = 128
    context: int = 2048


@dataclass(frozen=True, slots=True)
class Made:
    """A written model and what a profile has to say about it."""

    path: Path
    sha256: str
    size: int

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256}"


def write_tiny_gguf(path: Path, *, seed: int = 0, shape: Shape | None = None) -> Made:
    """Write the model to `path`."""
    shape = shape or Shape()
    tokens = _vocabulary()
    writer = GGUFWriter(str(path), "llama")
    _describe(writer, shape, len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([int(kind) for _, _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT)
    _weigh(writer, shape, len(tokens), np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    raw = path.read_bytes()
    return Made(path, hashlib.sha256(raw).hexdigest(), len(raw))


def _vocabulary() -> list[tuple[str, float, TokenType]]:
    tokens = [("<unk>", 0.0, TokenType.UNKNOWN), ("<s>", 0.0, TokenType.CONTROL), ("</s>", 0.0, TokenType.CONTROL)]
    # With all 256 byte tokens any text can be tokenized.
    tokens += [(f"<0x{byte:02X}>", 0.0, TokenType.BYTE) for byte in range(256)]
    tokens += [("<|im_start|>", 0.0, TokenType.CONTROL), ("<|im_end|>", 0.0, TokenType.CONTROL)]
    pieces = ["\u2581" + word for word in WORDS.split()] + ["\u2581", *"abcdefghijklmnopqrstuvwxyz.,!?"]
    tokens += [(piece, -float(n), TokenType.NORMAL) for n, piece in enumerate(pieces, start=1)]
    return tokens


def _describe(writer: GGUFWriter, shape: Shape, vocabulary: int) -> None:
    writer.add_name("tiny-llama-random")
    writer.add_file_type(int(LlamaFileType.ALL_F32))
    writer.add_license("cc0-1.0")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(vocabulary)


def _weigh(writer: GGUFWriter, shape: Shape, vocabulary: int, chance: np.random.Generator) -> None:
    def noise(*size: int) -> np.ndarray:
        # numpy counts (out, in); the file lists it the other way round.
        return (chance.standard_normal(size) * 0.05).astype(np.float32)

    width, inner = shape.width, shape.inner
    kv_width = shape.kv_heads * width // shape.heads
    ones = np.ones(width, np.float32)
    writer.add_tensor("token_embd.weight", noise(vocabulary, width))
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", noise(vocabulary, width))
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        writer.add_tensor(block + "attn_norm.weight", ones)
        writer.add_tensor(block + "ffn_norm.weight", ones)
        writer.add_tensor(block + "attn_q.weight", noise(width, width))
        writer.add_tensor(block + "attn_k.weight", noise(kv_width, width))
        writer.add_tensor(block + "attn_v.weight", noise(kv_width, width))
        writer.add_tensor(block + "attn_output.weight", noise(width, width))
        writer.add_tensor(block + "ffn_gate.weight", noise(inner, width))
        writer.add_tensor(block + "ffn_up.weight", noise(inner, width))
        writer.add_tensor(block + "ffn_down.weight", noise(width, inner))
