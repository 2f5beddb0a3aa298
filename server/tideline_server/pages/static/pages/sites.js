// Sites: who is here, how each is, and one of them with what it did.

import { html, useEffect, useState } from "../vendor/preact.js";
import { change, get, may } from "../api.js";
import { useNow } from "../changes.js";
import { Act, Code, Copy, ErrorBox, Status, Table, Time } from "../parts.js";
import { ago, count, moment } from "../words.js";

const SILENT = 90; // seconds after which a site counts as away; agents beat every few

export function Sites({ id, changes, asked }) {
  const now = useNow(changes.drift);
  if (changes.sites === null) return changes.error ? html`<${ErrorBox} error=${changes.error} />` : html`<h1>Sites</h1><p class="quiet">Loading …</p>`;
  if (id) return html`<${Site} site=${changes.sites.find((each) => each.name === id)} name=${id} now=${now} runs=${changes.runs} />`;
  const pending = changes.sites.filter((each) => each.standing === "pending" || each.standing === "doubled");
  return html`
    <div class="title"><h1>Sites</h1><p class="quiet">${count(changes.sites.filter((each) => here(each, now)).length, "site")} here, of ${changes.sites.length}</p></div>
    ${pending.map((each) => html`<${Waiting} key=${each.name} site=${each} />`)}
    ${changes.sites.length > 0 && html`<${Table} label="Sites" rows=${changes.sites} name=${(each) => each.name} columns=${columns(now)} />`}
    ${may("operator") && html`<${Invite} open=${changes.sites.length === 0 || asked.has("invite")} />`}`;
}

const here = (site, now) => site.standing === "approved" && now - site.seen < SILENT;

const columns = (now) => [
  { head: "Site", by: (site) => site.name, cell: (site) => html`<a href=${`#/sites/${encodeURIComponent(site.name)}`}>${site.name}</a>` },
  { head: "Standing", by: (site) => site.standing, cell: (site) => html`<${Status} of=${site.standing} />` },
  { head: "Heard from", by: (site) => site.seen, cell: (site) => html`<span class=${here(site, now) ? "" : "cause"}><${Time} at=${site.seen}>${ago(site.seen, now)}</${Time}></span>` },
  { head: "May be", cell: (site) => site.roles.join(", ") },
  { head: "Labels", cell: (site) => Object.entries(site.labels).map(([name, value]) => `${name}=${value}`).join(", ") },
  { head: "Version", by: (site) => site.version, cell: (site) => site.version },
  { head: "Ledger", align: "right", by: (site) => site.ledger_entries, cell: (site) => (site.ledger_now === null ? site.ledger_entries ?? "–" : html`<span class="cause">differs</span>`), note: "entries that its ledger had when it told last" },
  { head: "Projects", cell: (site) => site.projects.join(", ") },
];

const path = (site, word) => `/clients/${encodeURIComponent(site.name)}/${word}`;

function Waiting({ site }) {
  if (site.standing === "doubled")
    return html`<div class="warn"><p><strong>${site.name}</strong> is held: two agents show its keys. Stop the wrong one. The right one's log names its session.</p>
      ${may("operator") && site.doubles.map((session) => html`<${Act} label=${`Let ${session} go on`} act=${() => change("POST", path(site, "approve"), { session })} ask=${`Let the session ${session} of ${site.name} go on? The other agent ends.`} />`)}</div>`;
  return html`<div class="warn"><p><strong>${site.name}</strong> waits for approval. Compare its fingerprint with what its owner reads: <code>${site.fingerprint}</code></p>
    ${may("operator") && html`<${Act} label="Approve" kind="main" act=${() => change("POST", path(site, "approve"))} />`}</div>`;
}

function Site({ site, name, now, runs }) {
  const [refused, setRefused] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (may("admin")) get(`/audit?client=${encodeURIComponent(name)}&limit=500`).then((found) => setRefused(found.slice(-60).reverse()), setError);
  }, [name]);
  if (!site) return html`<h1>${name}</h1><p>No site of this name is enrolled here. <a href="#/sites">To the sites</a></p>`;
  const open = runs ? [...runs.values()].filter((run) => run.status === "running" || run.status === "waiting").length : 0;
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
      <dt>Fingerprint</dt><dd><code>${site.fingerprint}</code> <${Copy} text=${site.fingerprint} /></dd>
      <dt>Ledger</dt><dd>${site.ledger_entries === null ? "not told yet" : `${count(site.ledger_entries, "entry", "entries")} when it told last`}${site.ledger_now !== null && html` <span class="cause">It has ${site.ledger_now} now, and lacks the one that it told.</span>`}</dd>
      <dt>Projects</dt><dd>${site.projects.join(", ")}; ${count(open, "run")} open in all</dd>
    </dl>
    ${may("admin") && html`<h2>What the audit log says of it</h2><${ErrorBox} error=${error} />
    <${Table} label="Audit entries" rows=${refused} name=${(entry) => entry.seq} columns=${[
      { head: "When", align: "one-line", cell: (entry) => moment(entry.at) },
      { head: "What", by: (entry) => entry.kind, cell: (entry) => entry.kind.replaceAll("_", " ") },
      { head: "Run", cell: (entry) => (entry.run ? html`<a href=${`#/runs/${entry.run}`}>${entry.run}</a>` : "") },
      { head: "Why", cell: (entry) => entry.details.what || entry.details.reason || entry.details.error || "" },
    ]} />`}`;
}

function Invite({ open }) {
  const [name, setName] = useState("");
  const [made, setMade] = useState(null);
  const command = made && `tideline agent --token ${made.token} --name ${made.name || "NAME"} --data FOLDER --role source`;
  return html`<details open=${open}><summary>Invite a site</summary>
    <p>Its agent runs beside the data. It calls this coordinator; nothing calls it.</p>
    <label>Name <input value=${name} placeholder="hospital-a" pattern="[A-Za-z0-9._-]+" onInput=${(e) => setName(e.target.value.trim())} /></label>
    <${Act} label="Make a token" kind="main" act=${() => change("POST", "/invites", { name }).then(setMade)} />
    ${made && html`<p>The token serves once, until ${moment(made.expires)}. It is shown here and nowhere else.</p><${Code} text=${command} label="The command at the site" />`}
  </details>`;
}
