"""The dialects of OpenAI's API that engines speak: their request fields, answers and metrics differ."""

from typing import Literal

Dialect = Literal["vllm", "llama-server", "sglang", "openai"]
