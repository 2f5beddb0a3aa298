// One site: how it stands, what it does now, and what it did, as far as it was told.

import { html, useEffect, useState } from "../vendor/preact.js";
import { change, get, listed, may } from "../api.js";
import { Act, Bar, Copy, ErrorBox, Status, Table } from "../parts.js";
import { ago, count, moment, percent, span } from "../words.js";
import { Waiting, path } from "./sites.js";

const LOOKED = 30; // newest runs that are looked through
const SHARES = "share of each class at each site";
const REFUSALS = /Refused|Declined|Policy/;

// What the newest runs say of a site: [{run, client, shares}], those that it took part in.
function useHistory(name) {
  const [history, setHistory] = useState(null);
  useEffect(() => {
    let over = false;
    (async () => {
      const { rows } = await listed(`/runs?newest=true&tops=true&limit=${LOOKED}`);
      const made = [];
      for (const line of rows) {
        const run = await get(`/runs/${encodeURIComponent(line.id)}`).catch(() => null);
        if (over) return;
        const client = run?.clients.find((each) => each.name === name);
        if (client) made.push({ run, client, shares: sharesOf(run, name) });
      }
      setHistory(made);
    })().catch(() => over || setHistory([]));
    return () => { over = true; };
  }, [name]);
  return history;
}

function sharesOf(run, name) {
  for (const phase of run.phases) {
    const table = phase.tables?.[SHARES];
    const [rows, columns] = [table?.rows ?? {}, table?.columns ?? []];
    if (rows[name]) return columns.map((column, at) => [column, rows[name][at]]);
    if (columns.includes(name)) return Object.entries(rows).map(([row, values]) => [row, values[columns.indexOf(name)]]);
  }
  return null;
}

export function Site({ site, name, now, changes, work }) {
  const history = useHistory(name);
  if (!site) return html`<h1>${name}</h1><p>No site of this name is enrolled here. <a href="#/sites">To the sites</a></p>`;
  const told = history || [];
  const device = told.find(({ client }) => client.computing)?.client.computing;
  const samples = told.find(({ client }) => client.samples !== null)?.client.samples;
  const shares = told.find((each) => each.shares)?.shares;
  return html`
    <div class="title"><h1>${site.name}</h1><${Status} of=${site.standing} />
      <span class="row">
        ${may("operator") && site.standing === "pending" && html`<${Act} label="Approve" kind="main" act=${() => change("POST", path(site, "approve"))} />`}
        ${may("admin") && site.standing !== "revoked" && html`<${Act} label="Ask for new keys" act=${() => change("POST", path(site, "rotate"))} />
        <${Act} label="Revoke" kind="danger" act=${() => change("POST", path(site, "revoke"), { reason: "" })} ask=${`Revoke ${site.name}? Its open orders end as failed, and it is locked out until you invite it again.`} />`}
      </span>
    </div>
    ${(site.standing === "doubled" || site.standing === "pending") && html`<${Waiting} site=${site} />`}
    ${site.reason && html`<p class="cause">${site.reason}</p>`}
    <dl>
      <dt>Heard from</dt><dd>${moment(site.seen)}, ${ago(site.seen, now)}</dd>
      <dt>Enrolled</dt><dd>${moment(site.enrolled)}</dd>
      <dt>May be</dt><dd>${site.roles.join(", ")}</dd>
      <dt>Version</dt><dd>${site.version}</dd>
      <dt>Computes on</dt><dd>${site.device ?? html`<span class="quiet">not told: its owner forbids notes, or its agent is older than 0.3.0</span>`}${device && html`<br /><span class="quiet">lately in runs: ${device.device}, ${device.precision}</span>`}</dd>
      <dt>Training rows</dt><dd>${samples === undefined ? html`<span class="quiet">not told</span>` : samples.toLocaleString()}</dd>
      ${shares && html`<dt>Rows by class</dt><dd>${shares.map(([label, share]) => `${label} ${percent(share)}`).join(", ")}</dd>`}
      <dt>Fingerprint</dt><dd><code>${site.fingerprint}</code> <${Copy} text=${site.fingerprint} /></dd>
      <dt>Ledger</dt><dd>${site.ledger_entries === null ? "not told yet" : `${count(site.ledger_entries, "entry", "entries")} when it told last`}${site.ledger_now !== null && html` <span class="cause">It has ${site.ledger_now} now, and lacks the one that it told.</span>`}</dd>
      <dt>Labels</dt><dd>${Object.entries(site.labels).map(([label, value]) => `${label}=${value}`).join(", ") || "none"}</dd>
      <dt>Projects</dt><dd>${site.projects.join(", ") || "none"}</dd>
    </dl>
    <h2>In work</h2>
    ${work.length ? html`<${Table} label="Orders in work" cards=${true} rows=${work} name=${(order) => `${order.run} ${order.cursor}`} columns=${ORDERS(now)} />` : html`<p class="quiet">Nothing is asked of it now.</p>`}
    <${Refused} history=${history} />
    <h2>Its last runs</h2>
    ${history === null ? html`<p class="quiet">Looking …</p>` : told.length ? html`<${Table} label="Runs of the site" cards=${true} rows=${told} name=${({ run }) => run.run} columns=${RUNS} />` : html`<p class="quiet">It took part in none of the last ${Math.min(LOOKED, changes.total)}.</p>`}
    ${may("admin") && html`<${Audited} name=${name} now=${now} />`}`;
}

const ORDERS = (now) => [
  { head: "Run", cell: (order) => html`<a href=${`#/runs/${order.run}`}>${order.name}</a>` },
  { head: "Step", cell: (order) => `${order.phase}, round ${order.round}${order.attempt > 1 ? `, try ${order.attempt}` : ""}` },
  { head: "Asked", align: "one-line", cell: (order) => ago(order.created, now) },
  { head: "Progress", cell: (order) => (order.held ? html`<span class="cause">its owner holds it: ${order.held}</span>` : html`<${Bar} share=${order.progress} />`) },
];

const RUNS = [
  { head: "Run", by: ({ run }) => run.name, cell: ({ run }) => html`<a href=${`#/runs/${run.run}`}>${run.name || run.run}</a>` },
  { head: "Status", by: ({ run }) => run.status, cell: ({ run }) => html`<${Status} of=${run.status} />` },
  { head: "Role", cell: ({ client }) => client.role },
  { head: "Accuracy", align: "right", by: ({ client }) => client.accuracy, cell: ({ client }) => percent(client.accuracy) },
  { head: "Took", align: "right", cell: ({ run }) => span(run.seconds) },
  { head: "Missed", cell: ({ client }) => (client.failures.length ? html`<span class="cause" title=${client.failures.at(-1).what}>${count(client.failures.length, "answer")}: ${[...new Set(client.failures.map((each) => each.kind))].join(", ")}</span>` : "") },
];

// What its owner did not let it do: what its policy refuses, as far as runs have run into it.
function Refused({ history }) {
  const said = (history || []).flatMap(({ run, client }) => [...(client.declined ? [{ run, what: client.declined }] : []), ...client.failures.filter((each) => REFUSALS.test(each.kind)).map((each) => ({ run, what: each.what }))]);
  const first = [...new Map(said.map((each) => [each.what, each])).values()];
  if (!first.length) return null;
  return html`<h2>What its owner refused</h2><ul>${first.map(({ run, what }) => html`<li>${what} <span class="quiet">(<a href=${`#/runs/${run.run}`}>${run.name || run.run}</a>)</span></li>`)}</ul>`;
}

const WEEK = 7 * 86400;
const MOST_PAGES = 20;
const USUAL = new Set(["reply_accepted"]); // what it does all the time

// Entries of a week about a site, the newest first, without what it does all the time.
async function entriesOf(name, since) {
  const found = [];
  let after = 0;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const some = await get(`/audit?client=${encodeURIComponent(name)}&since=${Math.floor(since)}&limit=1000&after=${after}`);
    found.push(...some.filter((entry) => !USUAL.has(entry.kind)));
    if (some.length < 1000) break;
    after = some.at(-1).seq;
  }
  return found.slice(-60).reverse();
}

function Audited({ name, now }) {
  const [entries, setEntries] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    entriesOf(name, now - WEEK).then(setEntries, setError);
  }, [name]);
  if (entries === null) return html`<${ErrorBox} error=${error} />`;
  if (!entries.length) return html`<h2>What the audit log says of it</h2><p class="quiet">Nothing within a week but replies.</p>`;
  return html`<h2>What the audit log says of it</h2><p class="quiet">Within a week, without its replies.</p>
    <${Table} label="Audit entries" cards=${true} rows=${entries} name=${(entry) => entry.seq} columns=${[
      { head: "When", align: "one-line", cell: (entry) => moment(entry.at) },
      { head: "What", by: (entry) => entry.kind, cell: (entry) => entry.kind.replaceAll("_", " ") },
      { head: "Run", cell: (entry) => (entry.run ? html`<a href=${`#/runs/${entry.run}`}>${entry.run}</a>` : "") },
      { head: "Why", cell: (entry) => entry.details.what || entry.details.reason || entry.details.error || "" },
    ]} />`;
}
