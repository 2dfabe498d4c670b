"""Fields of engines' own servers and of other APIs that would change a reply, and that a surface does not take. Pure.

The gateway refuses them by name. It ignores hints and tuning of the sampling, and names them in `x-manners-ignored`.
"""

from collections.abc import Mapping

_TOKENS = "the reply is filtered, not an engine's tokens"
_KEEPS_NOTHING = "this gateway keeps nothing; send the whole conversation each time"


def _by_name(names: Mapping[str, str], form: str = "") -> Mapping[str, str]:
    """The reason by each name, of names by their reason; with `form` also for the fields of vLLM and llama-server beyond every API.

    `form` is the surface's own field for the form of an answer.
    """
    engines = {
        f"the form of an answer is asked for by {form}":
            "guided_json guided_regex guided_choice guided_grammar structured_outputs grammar json_schema",
        _TOKENS: "echo prompt_logprobs include_stop_str_in_output bad_words allowed_token_ids stop_token_ids logits_processors",
        "one reply is sampled for each choice": "use_beam_search best_of",
        "nothing is left out in silence; send less": "truncate_prompt_tokens",
        "the engine's own is used": "chat_template",
        "put them into a message": "documents",
        "send text": "prompt_embeds",
        "the operator says which engine serves a model": "lora",
    }  # fmt: skip
    rows = [*(engines if form else {}).items(), *names.items()]
    return {name: why for why, listed in rows for name in listed.split()}


CHAT = _by_name(
    {
        "send messages": "input prompt",
        "send a system message": "instructions system",
        "send tools": "functions",
        "send tool_choice": "function_call",
        "send stop": "stop_sequences",
        "send max_completion_tokens": "max_output_tokens",
        "send response_format": "output_config output_format",
        "replies are text": "modalities audio",
        "declare a tool that searches": "web_search_options",
        _KEEPS_NOTHING: "store",
        "nothing is moderated here": "moderation",
        "no engine has such a switch; ask for it in the prompt": "verbosity",
    },
    "response_format",
)
TURN = _by_name({"send tool_calls": "function_call", "send what was said as text": "audio"})
"""Of an earlier turn: without them the model would not know what it said."""
RESPONSES = _by_name(
    {
        "send input": "messages",
        "send instructions": "system",
        "send max_output_tokens": "max_tokens max_completion_tokens",
        "send text.format": "response_format",
        "send tools": "functions",
        "send tool_choice": "function_call",
        "this API has no stop sequences": "stop",
        "this API has one answer": "n",
        "requests and replies are text": "modalities image",
        "filtered text has no token log-probabilities": "logprobs top_logprobs",
        _KEEPS_NOTHING: "store background previous_response_id conversation prompt context_management",
        "this gateway runs no tool; count your own": "max_tool_calls",
        "nothing is moderated here": "moderation",
    },
    "text.format",
)
TEXT = _by_name({"no engine has such a switch; ask for it in the prompt": "verbosity"})
"""In the `text` of a response."""
MESSAGES = _by_name(
    {
        "send messages": "input prompt",
        "send system": "instructions",
        "send output_config.format": "response_format output_format",
        "send tools": "functions",
        "send tool_choice": "function_call",
        "send stop_sequences": "stop",
        "this API has one answer": "n",
        "this gateway connects to none; declare tools": "mcp_servers",
        "nothing is run here; declare tools": "container",
        _KEEPS_NOTHING: "context_management compaction thread diagnostics",
        "the operator configures a model's fallbacks": "fallbacks",
        "the gateway does not know where its engines stand": "inference_geo",
        _TOKENS: "logprobs",
    },
    "output_config.format",
)
COMPLETIONS = _by_name(
    {
        "this API continues a text; chats go to /v1/chat/completions": "messages response_format tools",
        "no engine's template is known for it": "suffix",
    },
    "the chat API",
)
