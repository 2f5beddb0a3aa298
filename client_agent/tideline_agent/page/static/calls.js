// Calls of the agent. Every error has what happened, and what to do.

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `The agent answered ${status}`);
    this.status = status;
    this.todo = body.todo || "";
  }
}

let csrf = "";

async function send(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Problem(0, { detail: "The agent does not answer", todo: "See whether it runs. This page tries again by itself" });
  }
  if (answer.status === 204) return null;
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, body);
  return body;
}

export const get = (path) => send(path);

export const change = (path, body) =>
  send(path, { method: "POST", headers: { "Content-Type": "application/json", "Tideline-CSRF": csrf }, body: JSON.stringify(body) });

// A one-time link brings its secret behind the #, which browsers send to nobody; it is taken out of the address at once.
export async function enter() {
  const link = /^#link=([\w-]+)$/.exec(location.hash);
  if (link) history.replaceState(null, "", "/");
  const found = link ? await change("enter", { link: link[1] }).catch((error) => get("session").catch(() => { throw error; })) : await get("session");
  csrf = found.csrf;
}
