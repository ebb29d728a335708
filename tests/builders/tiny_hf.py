"""A tiny random llama model as a Hugging Face folder. Run as a file by an interpreter with torch and transformers.

    PYTHON tests/builders/tiny_hf.py FOLDER

Byte-level tokens, two layers, head size 64 (the smallest that every CPU attention kernel takes). Its text is noise.
"""

from __future__ import annotations

import sys
from typing import Any

CHAT = "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>{% endfor %}<s>assistant\n"


def tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *letters])}
    made = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.chat_template = CHAT
    return fast


def write(folder: str) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=4096, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    words.save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1])
