// The Vercel AI SDK's rows, as in rows.py: `node rows.mjs FOLDER QUESTIONS all=URL decides=URL few=URL`, with node_modules in FOLDER.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, texts, ...asked] = process.argv.slice(2);
const questions = JSON.parse(texts);
const require = createRequire(pathToFileURL(`${folder}/package.json`));
const load = async (name) => await import(pathToFileURL(require.resolve(name)).href);
const { generateObject, generateText, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { z } = await load("zod");

const mood = z.object({ mood: z.enum(["glad", "sad"]) });
const search_memory = tool({
  description: "Search what the user told you before.",
  inputSchema: z.object({ query: z.string().max(60) }),
});
const steady = { temperature: 0, maxRetries: 0, maxOutputTokens: 128 };
const hello = { prompt: "Hello!", ...steady };
const happy = { prompt: "I am so happy today!", schema: mood, ...steady };
const forced = { ...hello, tools: { search_memory }, toolChoice: { type: "tool", toolName: "search_memory" } };

function words(said) {
  if (!said.trim()) throw new Error("no words");
  return said;
}

function called(reply) {
  const [made] = reply.toolCalls;
  if (made.toolName !== "search_memory" || typeof made.input.query !== "string") throw new Error(JSON.stringify(made));
  return made.toolName;
}

const read = (reply) => mood.parse(reply.object) && "mood";
async function heard(model, prompt) {
  let failure;
  const onError = ({ error }) => (failure = error);
  try {
    const done = streamText({ model, prompt, tools: { search_memory }, onError, ...steady });
    return [await done.text, (await done.toolCalls).map((call) => call.toolName)];
  } catch (error) {
    throw failure ?? error;
  }
}

const decides = (model) => Object.fromEntries(questions.map((asked) => [asked, () => heard(model, asked)]));
const all = (openai, anthropic) => ({
  "@ai-sdk/openai": {
    "generateText (chat)": async () => words((await generateText({ model: openai.chat("annie"), ...hello })).text),
    "streamText (chat)": async () => words(await streamText({ model: openai.chat("annie"), ...hello }).text),
    "generateText (responses)": async () => words((await generateText({ model: openai.responses("annie"), providerOptions: { openai: { store: false } }, ...hello })).text),
    "generateText (responses), stored": async () => words((await generateText({ model: openai.responses("annie"), providerOptions: { openai: { store: true } }, ...hello })).text),
    "generateText (chat), a named tool": async () => called(await generateText({ model: openai.chat("annie"), ...forced })),
    "generateObject (chat)": async () => read(await generateObject({ model: openai.chat("annie"), ...happy })),
    "generateObject (responses)": async () => read(await generateObject({ model: openai.responses("annie"), ...happy })),
    ...decides(openai.chat("annie")),
  },
  "@ai-sdk/anthropic": {
    ...decides(anthropic("annie")),
    generateText: async () => words((await generateText({ model: anthropic("annie"), ...hello })).text),
    streamText: async () => words(await streamText({ model: anthropic("annie"), ...hello }).text),
    "generateText, a named tool": async () => called(await generateText({ model: anthropic("annie"), ...forced })),
    generateObject: async () => read(await generateObject({ model: anthropic("annie"), ...happy })),
  },
});

function codeOf(error) {
  try {
    const body = JSON.parse(error.responseBody ?? error.lastError?.responseBody).error;
    return body.code ?? body.details?.error_code;
  } catch {
    return undefined;
  }
}

for (const word of asked) {
  const [kind, url] = word.split(/=(.*)/);
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
  const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" });
  for (const [name, rows] of Object.entries(all(openai, anthropic))) {
    const versionOf = (one) => JSON.parse(readFileSync(`${folder}/node_modules/${one}/package.json`, "utf8")).version;
    const version = `${versionOf(name)}, ai ${versionOf("ai")}`;
    for (const [what, ask] of ({ decides: questions, few: questions.slice(-2) }[kind] ?? Object.keys(rows)).map((what) => [what, rows[what]])) {
      let outcome;
      try {
        outcome = { [questions.includes(what) ? "heard" : "said"]: await ask() };
      } catch (error) {
        const code = codeOf(error);
        outcome = code ? { refused: code } : { failed: String(error.stack).slice(0, 2000) };
      }
      console.log(JSON.stringify({ package: name, version, url, what, ...outcome }));
    }
  }
}
