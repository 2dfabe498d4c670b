"""Fields of APIs and engines' own servers that would change a reply, and that this gateway does not take. Pure.

A surface refuses them by name, unless its request declares them. It ignores hints and tuning of the sampling, and names them in
`x-manners-ignored`.
"""

from collections.abc import Mapping
from typing import Any

from app.errors.tree import BadField

_NAMES = """
    messages input prompt instructions system tools functions function_call stop stop_sequences n n_predict max_tokens
    max_completion_tokens max_output_tokens response_format output_config output_format logprobs top_logprobs
    store background previous_response_id conversation context_management compaction thread diagnostics container mcp_servers
    max_tool_calls web_search_options modalities audio image suffix verbosity moderation fallbacks inference_geo
    guided_json guided_regex guided_choice guided_grammar structured_outputs grammar json_schema echo prompt_logprobs
    include_stop_str_in_output bad_words allowed_token_ids stop_token_ids logits_processors use_beam_search best_of
    truncate_prompt_tokens chat_template documents prompt_embeds lora
"""
UNSERVED = frozenset(_NAMES.split())
"""Another API's words; what needs a memory, tools or replies of another kind; vLLM's and llama-server's forms, tokens and templates."""
_SAYS_NOTHING = (["text"], "medium", {"type": "text"})
"""Values that request the default behaviour: text as the only modality or format, and medium verbosity."""


def refuse_unserved(undeclared: Mapping[str, Any], place: str = "") -> None:
    """Raises BadField for an unserved field that asks for something; `place` goes before its name."""
    for name in UNSERVED & undeclared.keys():
        if undeclared[name] and undeclared[name] not in _SAYS_NOTHING:
            message = f"{place}{name} is not served here; leave it out (docs/api.md says what is)"
            raise BadField(message, "unsupported_parameter", param=place + name)
