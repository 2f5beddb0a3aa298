// What left the building: every reply by the ledger, searched, in pages, and summed.

import { html, useState } from "./vendor/preact.js";
import { get } from "./calls.js";
import { Act, ErrorBox, Table } from "./parts.js";
import { bytes, count, moment } from "./words.js";
import { useLoaded } from "./sections.js";

const day = (text, after) => (text ? new Date(`${text}T00:00:00`).getTime() / 1000 + (after ? 86400 : 0) : "");

export function Egress({ now }) {
  const [asked, setAsked] = useState({ text: "", run: "", since: "", until: "" });
  const [skip, setSkip] = useState(0);
  const set = (name) => (event) => {
    setSkip(0);
    setAsked((before) => ({ ...before, [name]: event.target.value }));
  };
  const query = new URLSearchParams({ text: asked.text, run: asked.run.trim(), since: day(asked.since), until: day(asked.until, true) });
  const [found, error] = useLoaded(`egress?${query}&skip=${skip}`, now.sent);
  return html`<h2 id="egress-title">What left the building</h2>
    <${Chain} now=${now} />
    <form class="row" onSubmit=${(event) => event.preventDefault()} role="search">
      <label>Search <input type="search" value=${asked.text} onInput=${set("text")} /></label>
      <label>Run <input value=${asked.run} onInput=${set("run")} size="14" /></label>
      <label>From <input type="date" value=${asked.since} onInput=${set("since")} /></label>
      <label>To <input type="date" value=${asked.until} onInput=${set("until")} /></label>
    </form>
    <${ErrorBox} error=${error} />
    ${found && html`<${Found} found=${found} query=${query} skip=${skip} setSkip=${setSkip} />`}`;
}

function Chain({ now }) {
  const [checked, setChecked] = useState(null);
  const chain = checked && checked.broken ? checked : now.chain;
  const check = async () => setChecked(await get("verify"));
  return html`${chain.broken ? html`<p class="error" role="alert"><strong>${chain.broken}</strong><br />${chain.todo}</p>` : html`<p><span class="good"><span aria-hidden="true">✓</span> ${count(chain.entries, "entry", "entries")}, all as they were written.</span> <span class="quiet">Last hash: <code>${chain.hash.slice(0, 16)}</code></span></p>`}
    <p class="row"><${Act} label="Check the whole ledger again" kind="small" act=${check} /> ${checked && !checked.broken && html`<span role="status">Checked: ${count(checked.entries, "entry", "entries")}</span>`}</p>`;
}

// What leaves under one word, to the same readers, stands in one line, each field with its size where that is known.
function grouped(row) {
  const sizes = new Map(row.sizes.map(([field, size]) => [field, size]));
  const found = new Map();
  for (const [field, exposure, to] of row.fields) {
    const how = `${exposure.toUpperCase()} to ${to}`;
    found.set(how, [...(found.get(how) || []), sizes.has(field) ? `${field} (${bytes(sizes.get(field))})` : field]);
  }
  return [...found];
}

// Each field by itself, with the digest of the file in which it lies.
function ByField({ row }) {
  const how = new Map(row.fields.map(([field, exposure, to]) => [field, `${exposure.toUpperCase()} to ${to}`]));
  return html`<details class="fields"><summary>By field</summary><ul>${row.sizes.map(([field, size, digest]) => html`<li><strong>${field}</strong>: ${how.get(field) || "sealed for peers"}, ${bytes(size)}, <code title=${digest}>${digest.slice(0, 15)}…</code></li>`)}</ul></details>`;
}

const COLUMNS = [
  { head: "When", cell: (row) => moment(row.at) },
  { head: "Run", cell: (row) => row.run },
  { head: "Step", cell: (row) => `${row.step}, round ${row.round}` },
  { head: "What, as what, to whom", cell: (row) => (row.fields.length ? html`${grouped(row).map(([how, fields]) => html`<div>${how}: ${fields.join(", ")}</div>`)}${row.sizes.length > 0 && html`<${ByField} row=${row} />`}` : "no values") },
  { head: "Size", cell: (row) => bytes(row.bytes), align: "right" },
  { head: "Digest", cell: (row) => row.digests.map((each) => html`<code class="digest" title=${each}>${each.slice(0, 15)}…</code>`) },
];
const sums = (head) => [
  { head, cell: (row) => row[0] },
  { head: "Replies", cell: (row) => row[1], by: (row) => row[1], align: "right" },
  { head: "Bytes", cell: (row) => bytes(row[2]), by: (row) => row[2], align: "right" },
];

function Found({ found, query, skip, setSkip }) {
  const to = Math.min(skip + found.page, found.found);
  return html`<p role="status" id="total">${count(found.found, "reply", "replies")}, ${bytes(found.bytes)}. <a href=${`/api/egress.csv?${query}`} download>Save as CSV</a> <a href=${`/api/egress.jsonl?${query}`} download>Save as JSON lines</a></p>
    <div class="two">
      <${Table} label="Sums by what tells most" columns=${sums("As")} rows=${found.exposures} name=${(row) => row[0]} />
      <${Table} label="Sums by run" columns=${sums("Run")} rows=${found.runs} name=${(row) => row[0]} />
    </div>
    <p class="quiet">A size is of the files of a reply. Metrics, a few numbers, travel beside them and are not in the size.</p>
    <${Table} label="Replies that left" cards=${true} columns=${COLUMNS} rows=${found.rows} name=${(row) => row.entry} />
    ${found.found > found.page && html`<p class="row">
      <button disabled=${skip === 0} onClick=${() => setSkip(skip - found.page)}>Newer</button>
      <span>${skip + 1} to ${to} of ${found.found.toLocaleString()}</span>
      <button disabled=${to >= found.found} onClick=${() => setSkip(skip + found.page)}>Older</button>
    </p>`}`;
}
