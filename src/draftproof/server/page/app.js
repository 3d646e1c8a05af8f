"use strict";

const $ = (id) => document.getElementById(id);
const messages = [];
const speeds = []; // of the last polls
let running = null; // the AbortController of the answer that is being read

// -- talking to the server -------------------------------------------------------------------------------

function headers() {
  const sent = { "Content-Type": "application/json" };
  if ($("key").value) sent.Authorization = `Bearer ${$("key").value}`;
  return sent;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function problem(response) {
  const told = await response.json().catch(() => null);
  if (response.status === 401) {
    $("key-label").hidden = false;
    $("key").focus();
  }
  return new Error(told?.error?.message ?? `the server answered ${response.status}`);
}

// -- the conversation ------------------------------------------------------------------------------------

function turn(kind, text = "") {
  $("hint")?.remove();
  const made = Object.assign(document.createElement("div"), { className: `turn ${kind}`, textContent: text });
  $("log").append(made);
  scroll();
  return made;
}

function scroll() {
  $("log").scrollTop = $("log").scrollHeight;
}

// One span per round; in it the accepted drafts and the target's own token have tints of their own.
function showRound(place, round) {
  const span = document.createElement("span");
  span.className = "round";
  span.title = round.drafted ? `drafted ${round.drafted}, accepted ${round.accepted}` : "nothing drafted";
  for (const [text, drafted] of round.pieces) {
    span.append(Object.assign(document.createElement("span"), {
      className: drafted ? "drafted" : "bonus", textContent: text,
    }));
  }
  place.append(span);
}

// Under an answer: what its rounds came to.
function summary(rounds, seconds) {
  const tokens = rounds.reduce((sum, round) => sum + round.accepted + 1, 0);
  const drafted = rounds.filter((round) => round.drafted).length;
  const parts = [`${rounds.length} rounds`, `${(tokens / rounds.length).toFixed(2)} tokens a round`];
  parts.push(drafted ? `drafts in ${drafted} of them` : "nothing drafted");
  const made = Object.assign(document.createElement("p"), {
    className: "note summary", textContent: `${parts.join(" · ")} · ${seconds.toFixed(1)} s`,
  });
  $("log").append(made);
  scroll();
}

async function answer() {
  const place = turn("assistant");
  const rounds = [], began = performance.now();
  place.setAttribute("aria-busy", "true");
  let content = "";
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), signal: running.signal,
      body: JSON.stringify({
        messages, stream: true, speculation: true,
        temperature: Number($("temperature").value), max_tokens: Number($("limit").value),
      }),
    });
    if (!response.ok) throw await problem(response);
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      for (const choice of event.choices) content += choice.delta.content ?? "";
      for (const round of event.speculation?.rounds ?? []) {
        showRound(place, round);
        rounds.push(round);
      }
      scroll();
    }
  } catch (error) {
    if (error.name !== "AbortError") turn("error", `error: ${error.message}`);
  }
  place.removeAttribute("aria-busy");
  if (rounds.length) summary(rounds, (performance.now() - began) / 1000);
  if (content.trim()) messages.push({ role: "assistant", content });
  else {
    messages.pop(); // a question without an answer is not part of the conversation
    if (!place.textContent) place.remove();
  }
}

async function send(text = $("input").value.trim()) {
  if (!text || running) return;
  messages.push({ role: "user", content: text });
  turn("user", text);
  $("input").value = "";
  running = new AbortController();
  busy(true);
  await answer();
  running = null;
  busy(false);
  $("input").focus();
}

function busy(yes) {
  $("send").disabled = yes;
  $("stop").disabled = !yes;
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
for (const example of document.querySelectorAll(".example")) {
  example.addEventListener("click", () => send(example.textContent));
}
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  $("log").replaceChildren();
  $("input").focus();
});

// -- the engine ------------------------------------------------------------------------------------------

function show(live) {
  const { target, drafter, method, dtype, backend, device } = live.engine;
  const short = drafter.split(/[/\\]/).filter(Boolean).pop(); // of a folder's path the last part
  const how = drafter === "none" ? "without a drafter" : `with ${short} (${method})`;
  $("engine").textContent = `${live.model === target ? target : `${live.model} = ${target}`} ${how}, ${dtype}, ${backend} on ${device}`;
  $("tau").textContent = live.tau === null ? "–" : live.tau.toFixed(2);
  $("speed").textContent = live.tokens_per_s ? live.tokens_per_s.toFixed(1) : "–";
  $("cache").textContent = live.cache?.queries ? `${Math.round((100 * live.cache.hits) / live.cache.queries)} %` : "–";
  $("load").textContent = `${live.running}, ${live.waiting}`;
  speeds.push(live.tokens_per_s);
  if (speeds.length > 60) speeds.shift();
  drawSpeeds($("spark"), speeds);
  drawAcceptance($("chart"), live.accepted_at_least, live.rounds);
  $("policy").textContent = !live.policy
    ? "There is no drafter."
    : live.policy.length === null
      ? "No choice made yet."
      : `Last choice: ${live.policy.length} (${live.policy.reason}). On average ${live.drafted_per_round.toFixed(1)} tokens drafted per round.`;
}

async function watch() {
  try {
    const response = await fetch("live", { headers: headers() });
    if (!response.ok) throw await problem(response);
    show(await response.json());
  } catch (error) {
    $("engine").textContent = `not connected: ${error.message}`;
  }
  setTimeout(watch, document.hidden ? 5000 : running ? 500 : 2000);
}

// -- light and dark --------------------------------------------------------------------------------------

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  $("theme").textContent = `theme: ${name}`;
  localStorage.setItem("theme", name);
}
$("theme").addEventListener("click", () => {
  const order = ["auto", "light", "dark"];
  setTheme(order[(order.indexOf(localStorage.getItem("theme") ?? "auto") + 1) % order.length]);
});
setTheme(localStorage.getItem("theme") ?? "auto");
watch();
