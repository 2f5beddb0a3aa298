// Small pieces that several pages are made of.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";

const STATUS = {
  waiting: ["…", "waiting for sites"],
  running: ["▶", "running"],
  stalled: ["!", "stalled"],
  completed: ["✓", "completed"],
  failed: ["✕", "failed"],
  cancelled: ["–", "cancelled"],
  valid: ["✓", "valid"],
  approved: ["✓", "approved"],
  pending: ["…", "waits for approval"],
  doubled: ["!", "doubled"],
  revoked: ["✕", "revoked"],
};

// Never by colour alone: a sign and a word.
export function Status({ of }) {
  const [sign, word] = STATUS[of] || ["?", of];
  return html`<span class=${`status ${of}`}><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

export function ErrorBox({ error }) {
  if (!error) return null;
  return html`<div class="error" role="alert">
    <strong>${error.message}</strong>
    ${error.path && html` <code>${error.path}</code>`}
    ${error.todo && html`<br />${error.todo}`}
  </div>`;
}

export function Live({ state }) {
  const words = { live: "live", begins: "connecting", held: "read every 8 s: something holds the live line back", away: "no connection, trying again", ended: "connecting again" };
  return html`<span class=${`live ${state}`} role="status">${words[state]}</span>`;
}

export function Bar({ share, label }) {
  const whole = Math.round(100 * share);
  return html`<span class="bar" role="img" aria-label=${label || `${whole} %`}><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="done" width=${100 * share} height="8" /></svg></span>`;
}

// A table that sorts by a column's head and scrolls by itself where it is too wide. columns: {head, cell, by, align, note}
// cards: on a narrow screen each row is a card, with its heads beside its cells.
export function Table({ columns, rows, name, label, first, cards = false }) {
  const [order, setOrder] = useState(first || null);
  const shown = order === null ? rows : sorted(rows, columns[Math.abs(order) - 1], order < 0);
  const next = (at) => setOrder(order === at ? -at : at);
  const is = (role) => (cards ? role : undefined); // said, for a style that makes cards takes it away
  return html`<div class=${cards ? "scroll cards" : "scroll"} tabindex="0" role="region" aria-label=${label}>
    <table role=${is("table")}>
      <thead role=${is("rowgroup")}>
        <tr role=${is("row")}>
          ${columns.map((column, index) => {
            const at = index + 1;
            const sort = order === at ? "ascending" : order === -at ? "descending" : null;
            const head = column.by ? html`<button class="head" onClick=${() => next(at)}>${column.head}<span aria-hidden="true">${sort === "ascending" ? " ↑" : sort ? " ↓" : ""}</span></button>` : column.head;
            return html`<th scope="col" role=${is("columnheader")} class=${column.align} title=${column.note} aria-sort=${sort}>${head}</th>`;
          })}
        </tr>
      </thead>
      <tbody role=${is("rowgroup")}>
        ${shown.map((row) => html`<tr key=${name(row)} role=${is("row")}>${columns.map((column, at) => (at === 0 ? html`<th scope="row" role=${is("rowheader")} data-head=${is(column.head)} class=${column.align}>${column.cell(row)}</th>` : html`<td role=${is("cell")} data-head=${is(column.head)} class=${column.align}>${column.cell(row)}</td>`))}</tr>`)}
      </tbody>
    </table>
  </div>`;
}

function sorted(rows, column, down) {
  const key = (row) => column.by(row) ?? -Infinity;
  const made = [...rows].sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0));
  return down ? made.reverse() : made;
}

// A button that asks once more before it does something that cannot be taken back. `act` returns a promise.
export function Act({ label, ask, act, kind = "", disabled = false }) {
  const [state, setState] = useState("rest");
  const [error, setError] = useState(null);
  const dialog = useRef(null);
  useEffect(() => {
    if (state === "asks" && dialog.current && !dialog.current.open) dialog.current.showModal();
  }, [state]);
  const go = async () => {
    setState("works");
    try {
      await act();
      setError(null);
    } catch (found) {
      setError(found);
    }
    setState("rest");
  };
  return html`<span class="act">
    <button class=${kind} disabled=${disabled || state === "works"} onClick=${() => (ask ? setState("asks") : go())}>${label}</button>
    ${error && html`<${ErrorBox} error=${error} />`}
    ${state === "asks" &&
    html`<dialog ref=${dialog} onClose=${() => setState((now) => (now === "asks" ? "rest" : now))}>
      <p>${ask}</p>
      <p class="row">
        <button class=${kind} onClick=${go}>${label}</button>
        <button onClick=${() => setState("rest")}>Leave it</button>
      </p>
    </dialog>`}
  </span>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  // Only pages that came over TLS, or from this machine, may write to the clipboard.
  return navigator.clipboard ? html`<button class="small" onClick=${copy}>${done ? "Copied" : label}</button>` : null;
}

export function Code({ text, label }) {
  return html`<div class="code"><pre tabindex="0" aria-label=${label}>${text}</pre><${Copy} text=${text} /></div>`;
}

export function Menu({ session, project, pick, out, version }) {
  const several = session.kind === "key" && session.project === "all" ? null : session.grants || [];
  const listed = several ? [...new Set(several.map((each) => each.project))] : null;
  return html`<details class="menu">
    <summary>${session.name || "no key"}</summary>
    <div>
      <p>${session.role}${session.project ? `, project ${session.project}` : ""}</p>
      ${listed === null && html`<${ProjectPicker} project=${project} pick=${pick} />`}
      ${listed && listed.length > 1 && html`<label>Project <select value=${project} onChange=${(e) => pick(e.target.value)}>${listed.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
      ${version && html`<p class="quiet">Tideline ${version} · <a href="/docs">API</a></p>`}
      ${session.kind !== "open" && html`<button onClick=${out}>Sign out</button>`}
    </div>
  </details>`;
}

function ProjectPicker({ project, pick }) {
  return html`<label>Project <input value=${project} placeholder="all" onChange=${(e) => pick(e.target.value.trim())} /></label>`;
}

export const Time = ({ at, children }) => html`<time datetime=${new Date(at * 1000).toISOString()} title=${new Date(at * 1000).toLocaleString()}>${children}</time>`;
