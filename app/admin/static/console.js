// The operators' console. It asks the operators' API and shows what that says; it decides nothing.
// Text is only ever set as text: whatever a report or an engine says cannot become part of the page.

const TOKEN = "manners.token";
const EVERY_MS = 2000; // status, engines and clocks
const SELDOM = 15; // of these rounds between two looks at reports, operations and the audit: the whole chain is verified
const POINTS = 60; // of a sparkline: two minutes
const WINDOW = 15; // rounds over which a median is taken
const READ = 12; // the newest reports
const CLOCKS = [
  ["First token", "gen_ai_server_time_to_first_token_seconds_bucket"],
  ["First content", "manners_time_to_first_content_seconds_bucket"],
  ["First sentence", "manners_time_to_first_sentence_seconds_bucket"],
];
const BREACHES = "manners_breach_total";
const SWITCHED = new Set(["resuming", "draining", "baking", "retiring", "rolling_back"]); // too late to cancel
const LOOK = {
  pass: "good", succeeded: "good", ready: "good", fail: "bad", failed: "bad", stuck: "bad", rejected: "bad",
  inconclusive: "open", rolled_back: "open", cancelled: "open",
};

const $ = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");
const short = (text) => text.replace(/(sha256:[0-9a-f]{8})[0-9a-f]{56}/g, "$1…");
const TIME = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const clock = (at) => new Date(at).toLocaleString([], TIME);
const chip = (text, look = LOOK[text] ?? "") => el("span", { class: `chip ${look}` }, words(text));

function el(tag, attributes = {}, ...children) {
  const svg = ["svg", "polyline", "line"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null));
  return made;
}

/** Replace what a node holds, but only if it would differ: what has the focus keeps it. */
function paint(node, value, make) {
  const key = JSON.stringify(value);
  if (node.dataset.shows === key) return;
  node.dataset.shows = key;
  node.replaceChildren(...[make(value)].flat());
}

function table(heads, rows, none) {
  if (!rows.length) return el("p", { class: "none" }, none);
  const head = el("thead", {}, el("tr", {}, heads.map((name) => el("th", { scope: "col" }, name))));
  return el("table", {}, head, el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell ?? "–"))))));
}

// -------------------------------------------------------------------------------------- the API

class Refusal extends Error {
  constructor(code, message, status) {
    super(message);
    Object.assign(this, { code, status });
  }
}

async function open(path, { body, headers = {}, ...more } = {}) {
  const sent = { Authorization: `Bearer ${sessionStorage.getItem(TOKEN)}`, ...headers };
  let response;
  try {
    const method = body ? "POST" : "GET";
    response = await fetch(path, { method, ...more, headers: sent, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refusal("unreachable", "the gateway does not answer", 0);
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: { code: response.status, message: response.statusText } }));
  throw new Refusal(error.code, error.message, response.status);
}

const ask = async (path, options) => (await open(path, options)).json();
const fault = ({ code, message }) => el("p", { class: "fault" }, el("code", {}, code), ` ${message}`);

// --------------------------------------------------------------------------------------- clocks

const history = []; // scrapes, oldest first

async function scrape() {
  const text = await (await open("../metrics")).text();
  const seen = { clocks: {}, breaches: {} };
  for (const [, name, labels, value] of text.matchAll(/^(\w+)\{(.*)\} (\S+)$/gm)) {
    const { model, le, detector } = Object.fromEntries(Array.from(labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g), (m) => m.slice(1)));
    if (name === BREACHES) {
      const found = (seen.breaches[model] ??= {});
      found[detector] = (found[detector] ?? 0) + Number(value);
    }
    if (!CLOCKS.some(([, metric]) => metric === name)) continue;
    const counts = ((seen.clocks[model] ??= {})[name] ??= {});
    counts[le] = (counts[le] ?? 0) + Number(value); // of all engines that served the model
  }
  history.push(seen);
  if (history.length > POINTS + WINDOW) history.shift();
}

/** The median of what was observed between two scrapes, in seconds, as Prometheus interpolates it; null of nothing. */
function median(older, newer) {
  const bounds = Object.keys(newer ?? {}).map((le) => [le === "+Inf" ? Infinity : Number(le), newer[le] - (older?.[le] ?? 0)]);
  bounds.sort((a, b) => a[0] - b[0]);
  const half = (bounds.at(-1)?.[1] ?? 0) / 2;
  if (!(half > 0)) return null;
  let [low, below] = [0, 0];
  for (const [high, count] of bounds) {
    if (count >= half) return high === Infinity ? low : low + ((high - low) * (half - below)) / (count - below);
    [low, below] = [high, count];
  }
  return null;
}

function medians(model, metric) {
  const at = (index) => history[Math.max(index, 0)].clocks[model]?.[metric];
  return history.map((_, index) => (index ? median(at(index - WINDOW), at(index)) : null)).slice(-POINTS);
}

function sparkline(points, said) {
  const most = Math.max(...points, 1e-9);
  const strokes = [[]];
  points.forEach((y, index) => {
    if (y === null) strokes.push([]);
    else strokes.at(-1).push(`${(index + POINTS - points.length).toFixed(1)},${(30 - (26 * y) / most).toFixed(2)}`);
  });
  const view = { viewBox: `0 0 ${POINTS - 1} 32`, preserveAspectRatio: "none", role: "img", "aria-label": said };
  const lines = strokes.filter((stroke) => stroke.length > 1);
  return el("svg", view, el("line", { class: "ground", x1: 0, x2: POINTS - 1, y1: 31, y2: 31 }),
    lines.map((stroke) => el("polyline", { class: "line", points: stroke.join(" ") })));
}

function clocksOf(model) {
  const tiles = CLOCKS.map(([title, metric]) => {
    const points = medians(model, metric);
    const recent = points.at(-1) ?? null;
    const now = recent ?? median(null, history.at(-1).clocks[model]?.[metric]); // before the page was opened, too
    const value = now === null ? "–" : now < 1 ? `${Math.round(now * 1000)}` : now.toFixed(2);
    const since = recent === null ? " since the start" : "";
    const unit = now === null ? "" : `${now < 1 ? " ms" : " s"}, median${since}`;
    const said = now === null ? `${title}: nobody has asked yet` : `${title}: ${value}${unit}${since ? "" : " of half a minute"}`;
    return el("div", { class: "clock" }, el("h3", {}, title), el("p", { class: "value" }, value, el("small", {}, unit)), sparkline(points, said));
  });
  const breaches = Object.entries(history.at(-1).breaches[model] ?? {}).filter(([, count]) => count);
  const total = breaches.reduce((sum, [, count]) => sum + count, 0);
  const named = breaches.map(([detector, count]) => `${words(detector)} ${count}`).join(", ");
  return [...tiles, el("div", { class: "clock" }, el("h3", {}, "Breaches since the start"),
    el("p", { class: "value" }, String(total)), el("p", { class: "note" }, named || "good manners so far"))];
}

// --------------------------------------------------------------------------------------- models

let status = { models: {} };
let engines = [];
let reports = [];
const readings = new Map(); // by digest: a report never changes

function modelCard(name) {
  const part = (kind) => el("div", { class: kind });
  const card = el("article", { class: "card model", id: `model-${name}`, "aria-labelledby": `title-${name}` },
    el("header", {}, el("h2", { id: `title-${name}` }, name), part("ungated"), part("override"), el("p", { class: "row" },
      el("button", { class: "back", type: "button", click: () => wishFor("rollback", name) }, "Roll back…"),
      el("button", { class: "main", type: "button", click: () => wishFor("promote", name) }, "Promote…"))),
    part("facts"), part("clocks"), el("div", { class: "progress", hidden: true },
      el("div", { class: "row" }, el("p", { class: "told", role: "status" }), el("button", { class: "cancel quiet", type: "button" }, "Cancel")),
      el("ol", { class: "track", "aria-label": "Phases" }), part("why")));
  $("models").append(card);
  return card;
}

function showModel(name, model) {
  const card = $(`model-${name}`) ?? modelCard(name);
  const watches = status.operator.role === "watch";
  card.querySelector(".main").disabled = watches;
  card.querySelector(".back").disabled = watches || (!model.previous && !model.operation);
  paint(card.querySelector(".ungated"), model.gated, (gated) => (gated ? "" : chip("live without a report", "open")));
  paint(card.querySelector(".override"), model.override, (held) =>
    held ? chip(`override until ${clock(held.expires)}: ${held.reason}`, "open") : "");
  const facts = { Live: model.replicas.join(", "), Before: model.previous ?? "nothing", Fallback: model.fallback.join(", ") || "none",
    Thinking: model.thinking, Since: model.since ? clock(model.since) : "–" };
  paint(card.querySelector(".facts"), facts, () => el("dl", { class: "route" }, Object.entries(facts).map(([term, value]) =>
    el("div", {}, el("dt", {}, term), el("dd", { class: term === "Live" ? "live" : "" }, value)))));
  card.querySelector(".clocks").replaceChildren(...clocksOf(name));
  if (model.operation) follow(model.operation);
}

function showEngines() {
  paint($("engines"), engines, () => table(["Engine", "State", "Serves", "Dialect", "Driver", "Restarts", "Last error"],
    engines.map((e) => [e.name, [chip(e.state), e.stays_out ? chip(e.stays_out, "open") : null], e.serves.join(", ") || null, e.dialect, e.driver, String(e.restarts), e.last_error]),
    "No engine is configured."));
}

// -------------------------------------------------------------------------------------- reports

const side = ({ engine, model, format }) => [engine || model, el("small", {}, engine ? `${model}, ${format}` : format)];
const armed = (arm) => (arm.engine ? `${arm.engine} (${arm.model}, ${arm.format})` : arm.model);

async function showReports() {
  reports = (await ask("reports")).reports;
  await Promise.all(reports.slice(0, READ).filter(({ digest }) => !readings.get(digest)).map(async ({ digest }) =>
    readings.set(digest, await ask(`reports/${digest}/reading`).catch(() => null))));
  paint($("reports"), reports.map(({ digest }) => [digest, readings.get(digest)]), () => table(["Candidate", "Against", "Verdict", "Signed", "Made", "Report"], reports.map((report) => {
    const read = readings.get(report.digest);
    const button = el("button", { class: "link", type: "button", click: () => openReport(report.digest) }, short(report.digest));
    const signed = read && (read.trusted ? "trusted" : chip("not trusted", "open"));
    return [read ? side(read.candidate) : el("code", {}, short(report.artefact)), read ? side(read.baseline) : null,
      chip(report.verdict), signed, clock(report.created), button];
  }), "No report was uploaded. manners gate makes one, manners promote uploads it."));
}

async function openReport(digest) {
  const read = readings.get(digest) ?? (await ask(`reports/${digest}/reading`));
  readings.set(digest, read);
  $("reading-body").replaceChildren(
    el("p", {}, chip(read.verdict), " ", read.trusted ? chip("signed by a trusted key", "good") : chip("not signed by a trusted key", "open")),
    el("h2", { id: "reading-title" }, read.headline),
    el("ul", {}, read.reasons.map((reason) => el("li", {}, reason))),
    el("p", { class: "soft" }, `${armed(read.candidate)} against ${armed(read.baseline)}, by the suite ${read.suite} and the policy ${read.policy}, ${clock(read.created)}`),
    table(["Gate", "Verdict", "Candidate", "Baseline", "Required"], read.gates.map((gate) =>
      [gate.title, chip(gate.decides ? gate.verdict : "advisory", gate.decides ? LOOK[gate.verdict] : ""), gate.candidate, gate.baseline, gate.required]), "No gate ran."),
    el("p", {}, el("code", {}, digest)));
  $("reading").showModal();
  $("reading-close").focus();
}

// ------------------------------------------------------------------------- promote and roll back

let wish = null;

function wishFor(kind, model) {
  const under = status.models[model].operation;
  wish = { kind, model, key: crypto.getRandomValues(new Uint32Array(4)).join("-") }; // a second click is the same wish
  $("wish-title").textContent = kind === "promote" ? `Promote an engine for ${model}` : `Roll ${model} back`;
  $("wish-fields").hidden = $("wish-plan").hidden = kind === "rollback";
  $("wish-do").textContent = kind === "promote" ? "Promote" : "Roll back";
  const others = engines.map((engine) => engine.name).filter((name) => !status.models[model].replicas.includes(name));
  $("engine").replaceChildren(...others.map((name) => el("option", {}, name)));
  const [newest] = passedFirst(reports.filter((report) => others.includes(about(report))));
  if (newest) $("engine").value = about(newest);
  chooseReport();
  if (kind === "rollback" && under) {
    $("plan").replaceChildren(el("p", {}, `${under.engine} is ${words(under.phase)}: it is turned back, and ${under.incumbent} serves.`));
    $("wish-do").disabled = false;
  } else if (kind === "rollback") plan();
  $("wish").showModal();
}

const about = ({ digest }) => readings.get(digest)?.candidate.engine;
const passedFirst = (found) => found.toSorted((a, b) => (b.verdict === "pass") - (a.verdict === "pass"));

/** The chosen engine's reports come first. */
function chooseReport() {
  const of = (report) => about(report) === $("engine").value;
  const sorted = [...passedFirst(reports.filter(of)), ...reports.filter((report) => !of(report))];
  $("report").replaceChildren(...sorted.map((report) => {
    return el("option", { value: report.digest }, `${report.verdict} · ${about(report) ?? ""} · ${clock(report.created)} · ${short(report.digest)}`);
  }), el("option", { value: "" }, "no report: an override lets it in"));
  unplan();
}

/** The engine that the chosen report is about. */
function chooseEngine() {
  const engine = about({ digest: $("report").value });
  if (Array.from($("engine").options).some(({ value }) => value === engine)) $("engine").value = engine;
  unplan();
}

function unplan() {
  $("plan").replaceChildren();
  $("refusal").replaceChildren();
  $("wish-do").disabled = true;
}

const wished = () => (wish.kind === "rollback" ? { model: wish.model }
  : { model: wish.model, engine: $("engine").value, report: $("report").value || null });

async function plan() {
  unplan();
  try {
    const body = wished();
    const found = await ask(`${wish.kind}?dry_run=1`, { body });
    if (JSON.stringify(body) !== JSON.stringify(wished())) return; // something else was chosen meanwhile
    const rows = { Serves: `${found.engine} instead of ${found.incumbent}`, Starts: found.starts.join(", ") || "nothing",
      Stops: found.stops.join(", ") || "nothing", How: words(found.strategy) };
    if (found.shift_weights.length) rows.Shifted = `${found.shift_weights.join(" %, ")} % of the conversations before the switch, ${found.shift_seconds} s each`;
    if (found.phases.includes("baking")) rows.Watched = `for ${found.bake_seconds} s, and turned back if it misbehaves`;
    $("plan").replaceChildren(el("dl", { class: "plan" }, Object.entries(rows).map(([term, value]) => [el("dt", {}, term), el("dd", {}, value)])));
    wish.phases = found.phases;
    $("wish-do").disabled = false;
    $("wish-do").focus();
  } catch (refused) {
    $("refusal").replaceChildren(fault(refused));
  }
}

async function grant() {
  $("wish-do").disabled = true;
  try {
    const operation = await ask(wish.kind, { body: wished(), headers: { "Idempotency-Key": wish.key, "Content-Type": "application/json" } });
    $("wish").close();
    follow(operation, wish.phases);
  } catch (refused) {
    $("refusal").replaceChildren(fault(refused));
  }
}

// ------------------------------------------------------------------------------------- progress

const followed = new Map(); // operation id → what is known of it

/** Follow an operation to its end, over as many connections as it takes; each goes on where the last one ended. */
async function follow(operation, phases = []) {
  const known = followed.get(operation.id);
  if (known) return void (phases.length && showProgress(Object.assign(known, { phases })));
  const it = { operation, phases, seen: [operation.phase], last: "0" };
  followed.set(operation.id, it);
  showProgress(it);
  while (!it.operation.done && sessionStorage.getItem(TOKEN)) {
    try {
      const response = await open(`operations/${operation.id}/events`, { headers: { "Last-Event-ID": it.last } });
      for await (const event of events(response)) hear(it, event);
    } catch (lost) {
      if (lost.status >= 400 && lost.status < 500) return; // it will not come back
    }
    if (!it.operation.done) await new Promise((wake) => setTimeout(wake, 500));
  }
  await Promise.allSettled([look(), lookSeldom()]);
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const whole = (rest + read.value).split("\n\n");
    rest = whole.pop();
    for (const block of whole) {
      const field = (name) => block.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1];
      if (field("data")) yield { id: field("id"), kind: field("event"), data: JSON.parse(field("data")) };
    }
  }
}

function hear(it, { id, kind, data }) {
  it.last = id;
  if (kind === "done") it.operation = data;
  else Object.assign(it.operation, { phase: data.phase, weight: data.weight, fault: data.fault ?? it.operation.fault });
  const { phase } = it.operation;
  if (!it.seen.includes(phase)) {
    it.seen.push(phase);
    if (SWITCHED.has(phase)) stand().catch(() => {}); // the next round tries again
  }
  showProgress(it);
}

function showProgress({ operation, phases, seen }) {
  const card = $(`model-${operation.model}`);
  if (!card) return;
  const { engine, kind, done, phase, weight, fault: why } = operation;
  const ahead = done ? [] : phases.slice(phases.indexOf(phase) + 1).filter((name) => !seen.includes(name));
  const look = (name) => (name !== phase || phase === "succeeded" ? "past" : done ? "bad" : "now");
  const now = (name) => (name === phase && !done ? "step" : null);
  card.querySelector(".progress").hidden = false;
  paint(card.querySelector(".told"), [operation.id, phase, weight], () =>
    [el("strong", {}, `${kind === "promote" ? "Promotion" : "Rollback"} to ${engine}`), " ", chip(phase), weight ? ` ${weight} % of the conversations` : ""]);
  paint(card.querySelector(".track"), [operation.id, seen, ahead, done], () => [
    ...seen.map((name) => el("li", { class: look(name), "aria-current": now(name) }, words(name))),
    ...ahead.map((name) => el("li", {}, words(name)))]);
  paint(card.querySelector(".why"), why, () => (why ? fault(why) : ""));
  const cancel = card.querySelector(".cancel");
  cancel.hidden = done || SWITCHED.has(phase);
  cancel.onclick = () => ask(`operations/${operation.id}/cancel`, { method: "POST" })
    .catch((refused) => card.querySelector(".why").append(fault(refused)));
}

async function showOperations() {
  const { operations } = await ask("operations?limit=8");
  paint($("operations"), operations, () => table(["Begun", "Model", "What", "Engine", "Before", "How it stands", "Why"], operations.map((o) =>
    [clock(o.created), o.model, o.kind, o.engine, o.incumbent, chip(o.phase), o.fault ? fault(o.fault) : null]), "Nothing was promoted yet."));
}

async function showAudit() {
  const { events: lines, head, chain } = await ask("audit?newest=1&limit=50");
  paint($("chain"), [head, chain], () => (chain.ok ? chip(`chain of ${head.seq} whole`, "good") : chip(`chain broken at ${chain.seq}: ${chain.why}`, "bad")));
  paint($("audit"), lines, () => table(["No.", "When", "Who", "What", "Of", "Hash"], lines.toReversed().map((event) =>
    [String(event.seq), clock(event.at), event.actor, event.verb, short(event.subject), el("code", { title: event.hash }, event.hash.replace(/^sha256:/, "").slice(0, 10))]), "Nothing yet."));
}

// ------------------------------------------------------------------------------ who may do what

const many = (n) => (n === null ? null : n.toLocaleString("en-GB"));
const since = ({ created, revoked }) => (revoked ? chip(`revoked ${clock(revoked)}`, "bad") : created ? clock(created) : "the configuration");

async function showKeys() {
  const [{ keys }, { operators }] = await Promise.all([ask("keys"), ask("operators")]);
  const limited = (limits) => Object.entries(limits).filter(([, value]) => value !== null).map(([name, value]) => `${words(name)} ${many(value)}`);
  paint($("keys"), keys, () => table(["Key", "Limits", "Tokens today", "In all", "Open now", "Since"],
    keys.map((key) => [key.name, limited(key.limits).join(" · ") || null, many(key.used.today), many(key.used.total), String(key.used.in_flight), since(key)]),
    "Anybody on this machine may call. manners key add makes a key."));
  paint($("operators"), operators, () => table(["Operator", "Role", "Since"], operators.map((one) => [one.name, one.role, since(one)]), ""));
}

// ------------------------------------------------------------------------------------ the rounds

async function stand() {
  const [standing, listed] = await Promise.all([ask("status"), ask("engines")]);
  [status, engines] = [standing, listed.engines];
  const serving = status.draining ? "draining" : status.ready ? "ready" : "not ready";
  const { name: who, role } = status.operator;
  paint($("state"), [serving, status.in_flight, who, role], () =>
    [chip(serving, serving === "ready" ? "good" : "open"), ` ${status.in_flight} in flight · ${who} (${role})`]);
  for (const [name, model] of Object.entries(status.models)) showModel(name, model);
  showEngines();
}

const look = async () => void (await scrape(), await stand());
const lookSeldom = () => Promise.all([showReports(), showOperations(), showKeys(), showAudit()]);

let rounds = 0;

async function round() {
  if (!sessionStorage.getItem(TOKEN)) return;
  try {
    if (!document.hidden) await Promise.all([look(), rounds++ % SELDOM ? null : lookSeldom()]);
    $("trouble").hidden = true;
  } catch (refused) {
    if (refused.status === 401) return leave(refused);
    $("trouble").replaceChildren(fault(refused));
    $("trouble").hidden = false;
  }
  setTimeout(round, EVERY_MS);
}

function enter() {
  const inside = sessionStorage.getItem(TOKEN) !== null;
  $("enter").hidden = inside;
  $("inside").hidden = $("leave").hidden = !inside;
  if (inside) round();
  else $("token").focus();
}

function leave(refused) {
  sessionStorage.removeItem(TOKEN);
  if (!refused) return location.reload();
  $("refused").replaceChildren(fault(refused));
  enter();
}

$("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("refused").replaceChildren();
  try {
    await ask("status");
    $("token").value = "";
    enter();
  } catch (refused) {
    leave(refused);
  }
});
$("leave").addEventListener("click", () => leave());
$("engine").addEventListener("change", chooseReport);
$("report").addEventListener("change", chooseEngine);
$("wish-plan").addEventListener("click", plan);
$("wish-do").addEventListener("click", grant);
$("wish-leave").addEventListener("click", () => $("wish").close());
enter();
