// promptfoo's side of the comparison: what the gate also judges, written again, apart, in another language.
// Each function takes a reply as promptfoo's OpenAI provider hands it on, and an assertion's `config`.

// Words in lower case with one space between them; "What's up?" is "whats up".
const normal = (text) =>
  text
    .normalize("NFKC")
    .replace(/['’ʼ]/g, "")
    .toLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, " ")
    .trim();

const told = (pass, reason) => ({ pass, score: pass ? 1 : 0, reason });

// The text of a reply: all of it, none where there are only calls, the content where there are both.
const said = (output) => (typeof output === "string" ? output : (!Array.isArray(output) && output?.content) || "");

// The calls of a reply: the provider hands on a list, or the whole message where there is text, too.
const made = (output) => (Array.isArray(output) ? output : (output?.tool_calls ?? []));

// One of the wordings occurs, at the borders of words.
function answer(output, { config }) {
  const text = ` ${normal(said(output))} `;
  return told(
    config.any.some((wording) => text.includes(` ${normal(wording)} `)),
    `expected ${config.any.join(" or ")} in: ${text.trim()}`,
  );
}

const same = (want, value) =>
  typeof want === "string" && typeof value === "string" ? normal(want) === normal(value) : want === value;

function fits(want, call) {
  if (call.name !== want.name) return false;
  const known = Object.keys(call.arguments).every((key) => key in want.arguments);
  return (
    known &&
    Object.entries(want.arguments).every(([key, accepted]) =>
      key in call.arguments
        ? accepted.some((one) => same(one, call.arguments[key]))
        : accepted.includes(""), // "" among the accepted values: it may be absent
    )
  );
}

// Each expected call was made once, in any order, and no other; JSON that does not parse is no call.
function calls(output, { config }) {
  const found = made(output);
  const shown = JSON.stringify(found.map((call) => call.function));
  if (found.length !== config.calls.length) return told(false, `${config.calls.length} calls expected: ${shown}`);
  let left;
  try {
    left = found.map((call) => ({ name: call.function.name, arguments: JSON.parse(call.function.arguments) }));
  } catch (error) {
    return told(false, `${error.message}: ${shown}`);
  }
  for (const want of config.calls) {
    const at = left.findIndex((call) => fits(want, call));
    if (at < 0) return told(false, `${JSON.stringify(want)} was not called: ${shown}`);
    left.splice(at, 1);
  }
  return told(true, shown);
}

module.exports = { answer, calls };
