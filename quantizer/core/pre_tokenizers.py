"""The patterns by which Qwen's tokenizers split a text before they look for tokens.

Source: transformers, models/qwen2/tokenization_qwen2.py and models/qwen3_5/tokenization_qwen3_5.py, PRETOKENIZE_REGEX.
"""

from __future__ import annotations

from typing import Final

QWEN2: Final = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN35: Final = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
"""Unlike QWEN2's, it counts combining marks as letters."""
