// The audit log, newest first, and what its chain ends with.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { Copy, ErrorBox, Table } from "../parts.js";
import { count, moment } from "../words.js";

const AT_ONCE = 200;
const SHORT = 70; // characters of details that are shown at once

const words = (entry) => Object.entries(entry.details).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join("; ");

function Details({ entry }) {
  const text = words(entry);
  if (text.length <= SHORT) return html`<span class="details">${text}</span>`;
  return html`<details class="details"><summary>${text.slice(0, SHORT)}…</summary>${text}</details>`;
}

export function Audit() {
  const [entries, setEntries] = useState([]);
  const [tip, setTip] = useState(null);
  const [kind, setKind] = useState("");
  const [who, setWho] = useState("");
  const [from, setFrom] = useState(null);
  const [error, setError] = useState(null);
  const read = async (start) => {
    const asked = new URLSearchParams({ after: String(Math.max(0, start)), limit: String(AT_ONCE) });
    if (kind) asked.set("kind", kind);
    return get(`/audit?${asked}`);
  };
  useEffect(() => {
    (async () => {
      try {
        const found = await get("/audit/tip");
        setTip(found);
        const start = kind ? 0 : found.seq - AT_ONCE;
        setEntries((await read(start)).reverse());
        setFrom(Math.max(0, start));
      } catch (problem) {
        setError(problem);
      }
    })();
  }, [kind]);
  const older = async () => {
    const start = Math.max(0, from - AT_ONCE);
    const some = (await read(start)).filter((entry) => entry.seq <= from).reverse();
    setEntries([...entries, ...some]);
    setFrom(start);
  };
  const shown = entries.filter((entry) => !who || `${entry.by} ${entry.client} ${entry.run}`.toLowerCase().includes(who.toLowerCase()));
  return html`<h1>Audit log</h1>
    <${ErrorBox} error=${error} />
    ${tip && html`<p>${count(tip.seq, "entry", "entries")}. Each is tied to the one before by a hash; the last is <code>${String(tip.hash).slice(0, 16)}…</code> <${Copy} text=${`${tip.seq} ${tip.hash}`} label="Copy the chain's head" /><br /><span class="quiet">Keep it somewhere else. <code>tideline audit verify</code> reads the whole chain and says where it was changed.</span></p>`}
    <form class="row" onSubmit=${(e) => e.preventDefault()}>
      <label>Who, site or run <input type="search" value=${who} onInput=${(e) => setWho(e.target.value)} /></label>
      <label>What <input value=${kind} placeholder="any" onChange=${(e) => setKind(e.target.value.trim())} list="kinds" /></label>
      <datalist id="kinds">${[...new Set(entries.map((entry) => entry.kind))].map((each) => html`<option value=${each} />`)}</datalist>
    </form>
    <${Table} label="Audit entries" cards=${true} rows=${shown} name=${(entry) => entry.seq} columns=${[
      { head: "No.", align: "right", cell: (entry) => entry.seq },
      { head: "When", align: "one-line", cell: (entry) => moment(entry.at) },
      { head: "What", cell: (entry) => entry.kind.replaceAll("_", " ") },
      { head: "Who", cell: (entry) => entry.by },
      { head: "Site", align: "one-line", cell: (entry) => entry.client },
      { head: "Run", cell: (entry) => (entry.run ? html`<a href=${`#/runs/${entry.run}`}>${entry.run}</a>` : "") },
      { head: "Details", cell: (entry) => html`<${Details} entry=${entry} />` },
    ]} />
    ${from > 0 && !kind && html`<p><button onClick=${older}>Show older entries</button></p>`}`;
}
