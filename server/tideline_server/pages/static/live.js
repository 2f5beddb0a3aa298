// Server-sent events over fetch, which unlike EventSource sends headers, tells why it was refused, and can be ended.

import { send } from "./api.js";

const FIRST = 500; // milliseconds until the first try again; each further one waits twice as long
const LONGEST = 15000;
const SILENT = 40000; // keep-alives come every 15 s: a line that is silent for longer is dead, or a proxy holds it back

const nothing = () => {};

// onAlive: whenever anything came, and be it a keep-alive. after: the number of the last event that is known.
export function follow(path, { onEvent, onState = nothing, onAlive = nothing, after = 0 }) {
  const ender = new AbortController();
  run(path, { onEvent, onState, onAlive }, after, ender.signal);
  return () => ender.abort();
}

async function run(path, { onEvent, onState, onAlive }, after, signal) {
  let last = after;
  let pause = FIRST;
  while (!signal.aborted) {
    const one = new AbortController();
    const stop = () => one.abort();
    signal.addEventListener("abort", stop);
    try {
      const more = last ? { "Last-Event-ID": String(last) } : {};
      const answer = await send(path, { headers: { Accept: "text/event-stream", ...more }, signal: one.signal });
      onState("live");
      for await (const event of events(answer.body, one, onAlive)) {
        pause = FIRST;
        if (event.id) last = Number(event.id);
        onEvent(event);
      }
      onState("ended");
    } catch (error) {
      if (signal.aborted) return;
      onState("away", error);
      if (error.status && error.status < 500 && error.status !== 429) return;
    } finally {
      signal.removeEventListener("abort", stop);
    }
    await new Promise((done) => setTimeout(done, pause * (0.75 + Math.random() / 2)));
    pause = Math.min(pause * 2, LONGEST);
  }
}

async function* events(body, ender, onAlive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const late = setTimeout(() => ender.abort(), SILENT);
    const { value, done } = await reader.read().finally(() => clearTimeout(late));
    if (done) return;
    onAlive();
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

export function parsed(block) {
  const event = { id: "", kind: "message", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at < 1) continue;
    const [name, value] = [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    if (name === "id") event.id = value;
    if (name === "event") event.kind = value;
    if (name === "data") event.data += value;
  }
  if (!event.data) return null;
  event.data = JSON.parse(event.data);
  return event;
}
