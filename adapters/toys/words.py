"""A tokenizer in which every id is one character: what is decoded and encoded again is what it was, for any ids.

Answers of a random network are any tokens, and a client must be able to send them back as part of a prompt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 512
"""Tokens, all of them words of the tokenizer."""
PAD, START, STOP = 0, 1, 2
SPECIAL = {
    "<|vision_start|>": 504,
    "<|vision_end|>": 505,
    "<|image_pad|>": 506,
    "<|video_pad|>": 507,
    "<|audio_start|>": 508,
    "<|audio_end|>": 509,
    "<|audio_pad|>": 510,
}
GLM = dict(
    zip(
        ("begin_of_image", "end_of_image", "image", "video", "begin_of_video", "end_of_video", "observation"),
        SPECIAL.values(),
        strict=True,
    )
)
"""The names that GLM's processors look for, in the same places; each between <| and |>."""
FIRST = 0x4E00
"""Token i is the character FIRST + i: one symbol each, none of them a space."""


def tokenizer(special: dict[str, int]) -> Any:
    """transformers' fast tokenizer around one word per character."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = {number: name for name, number in special.items()} | {PAD: "<pad>", START: "<s>", STOP: "</s>"}
    vocabulary = {names.get(number, chr(FIRST + number)): number for number in range(VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    words.decoder = decoders.Fuse()
    words.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names.values()])
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<pad>",
        clean_up_tokenization_spaces=False,
    )


def save(folder: Path, family: str) -> Any:
    """Write the family's tokenizer's files; returns it."""
    words = tokenizer({f"<|{name}|>": number for name, number in GLM.items()} if family.startswith("glm") else SPECIAL)
    words.save_pretrained(folder)
    return words
