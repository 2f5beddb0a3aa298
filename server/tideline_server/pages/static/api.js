// Calls of the coordinator's HTTP API, with the browser's session. Every error has what happened, and what to do.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `The coordinator answered ${status}`);
    this.status = status;
    this.kind = body.kind || "";
    this.todo = body.todo || "";
    this.path = body.path || "";
  }
}

export const AWAY = "Away"; // the kind of a problem that the network has, not the coordinator

let session = null;
let project = "";
let drift = 0;

// By how many seconds the coordinator's clock is ahead of this browser's, as its last answer said, to a second.
export const serverDrift = () => drift;

export function enter(found) {
  session = found;
}

// Which project calls are about. Empty: that of the key, or all.
export function choose(name) {
  project = name;
}

export const chosen = () => project;

function headers(more) {
  const made = { Accept: "application/json", ...more };
  if (project) made["Tideline-Project"] = project;
  if (session && session.csrf) made["Tideline-CSRF"] = session.csrf;
  return made;
}

export async function send(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { kind: AWAY, detail: "The coordinator does not answer", todo: "This page tries again by itself" });
  }
  const said = Date.parse(answer.headers.get("Date"));
  if (said) drift = (said + 500 - Date.now()) / 1000; // a whole second, so its middle
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, body);
}

export const get = async (path, signal) => (await send(path, { signal })).json();

// A page of a list, and how many rows all pages have together.
export async function listed(path) {
  const answer = await send(path);
  const rows = await answer.json();
  return { rows, count: Number(answer.headers.get("Tideline-Count") ?? rows.length) };
}

// A change. It is named, so that it takes effect once however often it is sent.
export async function change(method, path, body) {
  const named = { "Idempotency-Key": crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random()}` };
  if (body !== undefined) named["Content-Type"] = "application/json";
  const answer = await send(path, { method, headers: named, body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.status === 204 ? null : answer.json();
}

export const signIn = (key) => change("POST", "/sign-in/key", { key });

const RANK = { viewer: 0, operator: 1, admin: 2 };

// Whether the session's role covers another. The coordinator decides; this says what to show.
export const may = (role) => !!session && RANK[session.role] >= RANK[role];
