"""The patterns by which the tokenizers of Qwen and Llama 3 split a text before they look for tokens.

Source: transformers, models/qwen2 and qwen3_5, PRETOKENIZE_REGEX; llama.cpp, src/llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_LLAMA3.
"""

from typing import Final

QWEN2: Final = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN35: Final = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
"""Unlike QWEN2's, it counts combining marks as letters."""
LLAMA3: Final = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
"""Like QWEN2's, with up to three digits together."""
