// The list of runs: what is open first, then the newest.

import { html, useMemo, useState } from "../vendor/preact.js";
import { may } from "../api.js";
import { useNow } from "../changes.js";
import { Spark, useSparks } from "../sparks.js";
import { Bar, ErrorBox, Status, Table, Time } from "../parts.js";
import { OPEN, ago, count, progress, span } from "../words.js";

const SHOWN = 200; // rows that are drawn at first
const CHOICES = ["open", "completed", "failed", "cancelled"];

export function Runs({ changes, asked }) {
  const now = useNow(changes.drift);
  const [word, setWord] = useState("");
  const [status, setStatus] = useState(asked.get("status") || "");
  const [picked, setPicked] = useState([]);
  const [most, setMost] = useState(SHOWN);
  const rows = useMemo(() => filtered(changes.runs, word, status), [changes.runs, word, status]);
  const sparks = useSparks(rows);
  if (changes.runs === null) return changes.error ? html`<${ErrorBox} error=${changes.error} />` : html`<h1>Runs</h1><p class="quiet">Loading …</p>`;
  if (changes.runs.size === 0) return html`<${Nothing} sites=${changes.sites} />`;
  const open = [...changes.runs.values()].filter((run) => OPEN.has(run.status) && !run.parent).length;
  const toggle = (id) => setPicked(picked.includes(id) ? picked.filter((each) => each !== id) : [...picked, id]);
  return html`
    <div class="title"><h1>Runs</h1><p class="quiet">${count(changes.runs.size, "run")}, ${open} open</p>
      ${may("operator") && html`<a class="button" href="#/start">Start a run</a>`}
    </div>
    <form class="row" role="search" onSubmit=${(e) => e.preventDefault()}>
      <label>Search <input type="search" value=${word} placeholder="name, method, id" onInput=${(e) => setWord(e.target.value)} /></label>
      <label>Status <select value=${status} onChange=${(e) => setStatus(e.target.value)}>
        <option value="">any</option>${CHOICES.map((each) => html`<option value=${each}>${each}</option>`)}
      </select></label>
      ${picked.length > 1 ? html`<a class="button" href=${`#/compare/${picked.map(encodeURIComponent).join(",")}`}>Compare ${picked.length} runs</a>` : html`<span class="quiet">Tick two or more to compare them.</span>`}
    </form>
    ${rows.length === 0
      ? html`<p>No run fits. <button class="small" onClick=${() => { setWord(""); setStatus(""); }}>Show all</button></p>`
      : html`<${Table} label="Runs" rows=${rows.slice(0, most)} name=${(run) => run.id} columns=${columns(now, picked, toggle, sparks)} />`}
    ${rows.length > most && html`<p><button onClick=${() => setMost(most + 1000)}>Show more of ${rows.length}</button></p>`}`;
}

function filtered(runs, word, status) {
  const sought = word.trim().toLowerCase();
  const fits = (run) =>
    (!status || (status === "open" ? OPEN.has(run.status) : run.status === status)) &&
    (!sought || `${run.name} ${run.method} ${run.id} ${run.project}`.toLowerCase().includes(sought));
  const rows = runs ? [...runs.values()].filter(fits) : [];
  return rows.sort((one, other) => OPEN.has(other.status) - OPEN.has(one.status) || other.created - one.created);
}

const columns = (now, picked, toggle, sparks) => [
  { head: "Run", by: (run) => run.name || run.id, cell: (run) => html`<a href=${`#/runs/${run.id}`}>${run.name || run.id}</a>${run.parent && html` <span class="quiet">of <a href=${`#/runs/${run.parent}`}>${run.parent}</a></span>`}` },
  { head: "Method", by: (run) => run.method, cell: (run) => html`<code>${run.method}</code>` },
  { head: "Status", by: (run) => run.status, cell: (run) => html`<${Status} of=${run.status} />${run.cause && html`<br /><span class="cause">${run.cause}</span>`}` },
  { head: "Progress", by: progress, cell: (run) => html`<${Bar} share=${progress(run)} label=${`${Math.max(0, run.cursor)} of ${run.of} exchanges`} />` },
  { head: "Accuracy, mean", by: (run) => sparks[run.id]?.last, cell: (run) => html`<${Spark} of=${sparks[run.id]} />` },
  { head: "Started", by: (run) => run.created, cell: (run) => html`<${Time} at=${run.created}>${ago(run.created, now)}</${Time}>` },
  { head: "Took", align: "right", by: (run) => (run.ended || now) - run.created, cell: (run) => span((run.ended || now) - run.created) },
  { head: "Compare", cell: (run) => html`<input type="checkbox" aria-label=${`Compare ${run.name || run.id}`} checked=${picked.includes(run.id)} onChange=${() => toggle(run.id)} />` },
];

function Nothing({ sites }) {
  const there = (sites || []).length;
  return html`<h1>No runs yet</h1>
    ${there ? html`<p>${count(there, "site")} ${there === 1 ? "is" : "are"} here. ${may("operator") && html`<a class="button" href="#/start">Start the first run</a>`}</p>`
      : html`<p>No site is here, either. Invite one, and start its agent beside the data:</p><pre>tideline invite --name hospital-a
tideline agent --token TOKEN --name hospital-a --data FOLDER --role source</pre>`}`;
}
