"""Fields of engines' own servers and of other APIs that would change a reply, and that a surface does not take. Pure.

The gateway refuses them by name. It ignores hints and tuning of the sampling, and names them in `x-manners-ignored`.
"""

from collections.abc import Mapping

_FORM = "the form of an answer is asked for by {form}"
_TOKENS = "the reply is filtered, not an engine's tokens"


def engines_own(form: str) -> Mapping[str, str]:
    """Fields of vLLM and llama-server beyond the API, and why they are not sent on; `form` is the surface's own field."""
    guided = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")
    why = _FORM.format(form=form)
    return {
        **dict.fromkeys((*guided, "grammar", "json_schema"), why),
        **dict.fromkeys(("echo", "prompt_logprobs", "include_stop_str_in_output"), _TOKENS),
        **dict.fromkeys(("bad_words", "allowed_token_ids", "stop_token_ids", "logits_processors"), _TOKENS),
        **dict.fromkeys(("use_beam_search", "best_of"), "one reply is sampled for each choice"),
        "truncate_prompt_tokens": "nothing is left out in silence; send less",
        "chat_template": "the engine's own is used",
        "documents": "put them into a message",
        "prompt_embeds": "send text",
        "lora": "the operator says which engine serves a model",
    }


RESPONSE_FORMAT = "response_format"
CHAT: Mapping[str, str] = {
    **engines_own(RESPONSE_FORMAT),
    "input": "send messages",
    "prompt": "send messages",
    "instructions": "send a system message",
    "system": "send a system message",
    "stop_sequences": "send stop",
    "max_output_tokens": "send max_completion_tokens",
    "output_config": "send response_format",
    "output_format": "send response_format",
    "modalities": "replies are text",
    "audio": "replies are text",
    "web_search_options": "declare a tool that searches",
    "store": "this gateway keeps nothing",
    "moderation": "nothing is moderated here",
    "verbosity": "no engine has such a switch; ask for it in the prompt",
}
RESPONSES: Mapping[str, str] = {
    **engines_own("text.format"),
    "messages": "send input",
    "system": "send instructions",
    "max_tokens": "send max_output_tokens",
    "max_completion_tokens": "send max_output_tokens",
    "response_format": "send text.format",
    "functions": "send tools",
    "function_call": "send tool_choice",
    "stop": "this API has no stop sequences",
    "n": "this API has one answer",
    "logprobs": _TOKENS,
    "modalities": "replies are text",
    "top_logprobs": "filtered text has no token log-probabilities",
    "context_management": "this gateway keeps nothing; send the whole input each time",
    "max_tool_calls": "this gateway runs no tool; count your own",
    "moderation": "nothing is moderated here",
    "image": "requests and replies are text",
    "text.verbosity": "no engine has such a switch; ask for it in the prompt",
}
MESSAGES: Mapping[str, str] = {
    **engines_own("output_config.format"),
    "input": "send messages",
    "prompt": "send messages",
    "instructions": "send system",
    "response_format": "send output_config.format",
    "output_format": "send output_config.format",
    "functions": "send tools",
    "function_call": "send tool_choice",
    "stop": "send stop_sequences",
    "n": "this API has one answer",
    "logprobs": _TOKENS,
    "mcp_servers": "this gateway connects to none; declare tools",
    "container": "nothing is run here; declare tools",
    "context_management": "this gateway keeps nothing; send the messages that count",
    "compaction": "this gateway keeps nothing; send the messages that count",
    "thread": "this gateway keeps nothing; send the whole conversation each time",
    "diagnostics": "this gateway keeps nothing of an earlier message",
    "fallbacks": "the operator configures a model's fallbacks",
    "inference_geo": "the gateway does not know where its engines stand",
}
COMPLETIONS: Mapping[str, str] = {
    **{name: why for name, why in engines_own("the chat API").items() if name not in ("echo", "best_of")},
    "messages": "this API continues a text; chats go to /v1/chat/completions",
    "response_format": "this API continues a text; chats go to /v1/chat/completions",
    "tools": "this API continues a text; chats go to /v1/chat/completions",
}
