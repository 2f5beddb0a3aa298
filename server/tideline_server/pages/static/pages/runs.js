// The list of runs: what is open first, then the newest. The coordinator looks through all of them, a page at a time.

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { listed, may } from "../api.js";
import { useNow } from "../changes.js";
import { Awaited, Spark, useSparks } from "../sparks.js";
import { Bar, ErrorBox, Status, Table, Time } from "../parts.js";
import { OPEN, ago, count, progress, span } from "../words.js";

const PAGE = 100; // rows of a page
const FIRST = 25; // rows that are drawn before all others: as many as a window has
const TYPING = 250; // milliseconds without a key before the coordinator is asked
const CHOICES = ["open", "completed", "stalled", "failed", "cancelled"];

const fits = ({ words, status, tops }) => {
  const sought = words.trim().toLowerCase();
  return (run) =>
    (!status || (status === "open" ? OPEN.has(run.status) : run.status === status)) &&
    (!sought || `${run.name}\n${run.method}\n${run.id}\n${run.project}`.toLowerCase().includes(sought)) &&
    !(tops && run.parent);
};

const addressOf = ({ words, status, tops }, after = "") =>
  `/runs?newest=true&limit=${PAGE}${words && `&words=${encodeURIComponent(words)}`}${status && `&status=${status}`}${tops ? "&tops=true" : ""}${after && `&after=${encodeURIComponent(after)}`}`;

// Pages of what is sought, the newest first: {rows, total, more, next, error}. The first is read again when a run is new or gone.
function useFound(sought, news) {
  const key = JSON.stringify(sought);
  const [found, setFound] = useState({ key, rows: [], total: null, error: null });
  const refused = (error) => setFound((before) => ({ ...before, error }));
  useEffect(() => {
    let over = false;
    // Later pages stay, behind what the first page has now.
    const merged = (rows, before) => (before.key === key && rows.length ? [...rows, ...before.rows.filter((row) => row.created < rows.at(-1).created)] : rows);
    const look = () => listed(addressOf(sought)).then(({ rows, count: total }) => over || setFound((before) => ({ key, rows: merged(rows, before), total, error: null })), refused);
    const timer = setTimeout(look, TYPING);
    return () => { over = true; clearTimeout(timer); };
  }, [key, news]);
  const joined = (before, rows, total) => ({ ...before, rows: [...before.rows, ...rows], total: rows.length ? total : before.rows.length });
  const next = () => listed(addressOf(sought, found.rows.at(-1).id)).then(({ rows, count: total }) => setFound((before) => (before.key === key ? joined(before, rows, total) : before)), refused);
  return { ...found, next, more: found.total !== null && found.rows.length > 0 && found.rows.length < found.total };
}

// What was found, as it stands now, and what is known to fit beside it.
function together(found, runs, sought) {
  const all = new Map(found.rows.map((run) => [run.id, runs.get(run.id) ?? run]));
  const oldest = found.more && found.rows.length ? found.rows.at(-1).created : -Infinity;
  for (const run of runs.values()) if (OPEN.has(run.status) || run.created >= oldest) all.set(run.id, run);
  return [...all.values()].filter(fits(sought)).sort((one, other) => OPEN.has(other.status) - OPEN.has(one.status) || other.created - one.created);
}

export function Runs({ changes, asked }) {
  const now = useNow(changes.drift);
  const [words, setWords] = useState(asked.get("words") || "");
  const [status, setStatus] = useState(asked.get("status") || "");
  const [tops, setTops] = useState(true);
  const [picked, setPicked] = useState([]);
  const sought = useMemo(() => ({ words, status, tops }), [words, status, tops]);
  const found = useFound(sought, changes.runs ? changes.total : 0);
  const rows = useMemo(() => (changes.runs ? together(found, changes.runs, sought) : []), [changes.runs, found.rows, found.more, sought]);
  const sparks = useSparks(rows);
  const [most, setMost] = useState(FIRST);
  useEffect(() => {
    if (!rows.length || most > FIRST) return undefined;
    const timer = setTimeout(() => setMost(Infinity), 50);
    return () => clearTimeout(timer);
  }, [rows.length > 0]);
  if (changes.runs === null) return changes.error ? html`<${ErrorBox} error=${changes.error} />` : html`<h1>Runs</h1><p class="quiet">Loading …</p>`;
  if (changes.runs.size === 0 && changes.total === 0) return html`<${Nothing} sites=${changes.sites} />`;
  const open = [...changes.runs.values()].filter((run) => OPEN.has(run.status) && !run.parent).length;
  const toggle = (id) => setPicked(picked.includes(id) ? picked.filter((each) => each !== id) : [...picked, id]);
  const narrowed = words || status;
  return html`
    <div class="title"><h1>Runs</h1><p class="quiet">${count(changes.total, "run")} in all, ${open} open${found.total !== null && found.total !== changes.total ? `; ${count(Math.max(found.total, rows.length), narrowed ? "fits" : "is listed", narrowed ? "fit" : "are listed")}` : ""}</p>
      ${may("operator") && html`<a class="button" href="#/start">Start a run</a>`}
    </div>
    <form class="row" role="search" onSubmit=${(e) => e.preventDefault()}>
      <label>Search <input type="search" value=${words} maxlength="200" placeholder="name, method, id" onInput=${(e) => setWords(e.target.value)} /></label>
      <label>Status <select value=${status} onChange=${(e) => setStatus(e.target.value)}>
        <option value="">any</option>${CHOICES.map((each) => html`<option value=${each}>${each}</option>`)}
      </select></label>
      <label><input type="checkbox" checked=${!tops} onChange=${() => setTops(!tops)} /> with references and rehearsed candidates</label>
      ${picked.length > 1 ? html`<a class="button main" href=${`#/compare/${picked.map(encodeURIComponent).join(",")}`}>Compare ${picked.length} runs</a>` : html`<span class="quiet">Tick two or more to compare them.</span>`}
    </form>
    <${ErrorBox} error=${found.error} />
    ${rows.length === 0
      ? html`<p>${found.total === null ? "Looking …" : html`No run fits. <button class="small" onClick=${() => { setWords(""); setStatus(""); setTops(false); }}>Show all</button>`}</p>`
      : html`<${Table} label="Runs" cards=${true} rows=${rows.slice(0, most)} name=${(run) => run.id} columns=${columns(now, picked, toggle, sparks)} />`}
    ${found.more && html`<p class="row"><button onClick=${found.next}>Show ${Math.min(PAGE, found.total - found.rows.length)} more</button><span class="quiet">${rows.length.toLocaleString()} of ${found.total.toLocaleString()} are shown. Search looks through all of them, heads of columns sort what is shown.</span></p>`}`;
}

const columns = (now, picked, toggle, sparks) => [
  { head: "Run", by: (run) => run.name || run.id, cell: (run) => html`<a href=${`#/runs/${run.id}`}>${run.name || run.id}</a>${run.parent && html` <span class="quiet">of <a href=${`#/runs/${run.parent}`}>${run.parent}</a></span>`}` },
  { head: "Method", by: (run) => run.method, cell: (run) => html`<code>${run.method}</code>` },
  { head: "Status", by: (run) => run.status, cell: (run) => html`<${Status} of=${run.status} />${run.cause && html`<br /><span class="cause">${run.cause}</span>`}<${Awaited} of=${OPEN.has(run.status) && sparks[run.id]} now=${now} />` },
  { head: "Progress", by: progress, cell: (run) => html`<${Bar} share=${progress(run)} label=${`${Math.max(0, run.cursor)} of ${run.of} exchanges`} />` },
  { head: "Accuracy, mean", by: (run) => sparks[run.id]?.last, cell: (run) => html`<${Spark} of=${sparks[run.id]} />` },
  { head: "Started", align: "one-line", by: (run) => run.created, cell: (run) => html`<${Time} at=${run.created}>${ago(run.created, now)}</${Time}>` },
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
