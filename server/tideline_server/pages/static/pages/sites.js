// Sites: who is here, arranged and listed, and who waits to be let in.

import { html, useState } from "../vendor/preact.js";
import { change, may } from "../api.js";
import { useNow } from "../changes.js";
import { useWork } from "../work.js";
import { Act, Code, ErrorBox, Status, Table, Time } from "../parts.js";
import { ago, count, moment, names } from "../words.js";
import { Site } from "./site.js";

const SILENT = 90; // seconds after which a site counts as away; agents beat every few
const MOST = 400; // sites that are drawn as an arrangement

export function Sites({ id, changes, asked }) {
  const now = useNow(changes.drift);
  const work = useWork(changes.runs);
  const [picked, setPicked] = useState([]);
  if (changes.sites === null) return changes.error ? html`<${ErrorBox} error=${changes.error} />` : html`<h1>Sites</h1><p class="quiet">Loading …</p>`;
  if (id) return html`<${Site} key=${id} site=${changes.sites.find((each) => each.name === id)} name=${id} now=${now} changes=${changes} work=${work.get(id) || []} />`;
  const pending = changes.sites.filter((each) => each.standing === "pending" || each.standing === "doubled");
  const toggle = (name) => setPicked(picked.includes(name) ? picked.filter((each) => each !== name) : [...picked, name]);
  return html`
    <div class="title"><h1>Sites</h1><p class="quiet">${count(changes.sites.filter((each) => here(each, now)).length, "site")} here, of ${changes.sites.length}</p>
      ${may("operator") && picked.length > 0 && html`<a class="button main" href=${`#/start?sites=${picked.map(encodeURIComponent).join(",")}`}>Start a run with ${count(picked.length, "site")}</a>`}
    </div>
    ${pending.map((each) => html`<${Waiting} key=${each.name} site=${each} />`)}
    ${changes.sites.length > 1 && html`<${Arranged} sites=${changes.sites} now=${now} work=${work} />`}
    ${changes.sites.length > 0 && html`<${Table} label="Sites" cards=${true} rows=${changes.sites} name=${(each) => each.name} columns=${columns(now, work, picked, may("operator") && toggle)} />`}
    ${may("operator") && html`<${Invite} open=${changes.sites.length === 0 || asked.has("invite")} />`}`;
}

const here = (site, now) => site.standing === "approved" && now - site.seen < SILENT;
const stateOf = (site, now, work) => (site.standing !== "approved" ? site.standing : !here(site, now) ? "away" : (work.get(site.name) || []).length ? "working" : "here");

const STATES = {
  working: ["▶", "asked, no reply yet"],
  here: ["●", "here"],
  away: ["○", "not heard from"],
  pending: ["…", "waits for approval"],
  doubled: ["!", "doubled"],
  revoked: ["✕", "revoked"],
};

// Who is here, as tiles in groups: by what each does, by project, or by a label. No geography: nobody tells any.
function Arranged({ sites, now, work }) {
  const labels = [...new Set(sites.flatMap((site) => Object.keys(site.labels)))].sort();
  const [by, setBy] = useState("state");
  const groups = new Map();
  const put = (group, site) => groups.set(group, [...(groups.get(group) || []), site]);
  for (const site of sites) {
    if (by === "project") for (const project of site.projects.length ? site.projects : ["no project"]) put(project, site);
    else if (by === "state") put(STATES[stateOf(site, now, work)][1], site);
    else put(site.labels[by.slice(6)] ?? "without this label", site);
  }
  const order = by === "state" ? Object.values(STATES).map(([, word]) => word).filter((word) => groups.has(word)) : [...groups.keys()].sort();
  if (sites.length > MOST) return html`<p class="quiet">${count(sites.length, "site")}: too many to arrange; the table has them.</p>`;
  return html`<section aria-label="Arrangement of sites">
    <p class="row"><label>Arrange by <select value=${by} onChange=${(e) => setBy(e.target.value)}>
      <option value="state">what they do</option><option value="project">project</option>
      ${labels.map((label) => html`<option value=${`label ${label}`}>label ${label}</option>`)}
    </select></label></p>
    <ul class="groups">${order.map((group) => html`<li key=${group}><strong>${group}</strong><span class="quiet"> ${groups.get(group).length}</span>
      <span class="chips">${groups.get(group).map((site) => html`<${Tile} site=${site} state=${stateOf(site, now, work)} />`)}</span></li>`)}</ul>
  </section>`;
}

function Tile({ site, state }) {
  const [sign, word] = STATES[state];
  return html`<a class=${`chip ${state}`} href=${`#/sites/${encodeURIComponent(site.name)}`} title=${`${word}; may be ${site.roles.join(", ")}; version ${site.version}`}><span aria-hidden="true">${sign}</span> ${site.name}</a>`;
}

const columns = (now, work, picked, toggle) => [
  { head: "Site", by: (site) => site.name, cell: (site) => html`<a href=${`#/sites/${encodeURIComponent(site.name)}`}>${site.name}</a>` },
  { head: "Standing", by: (site) => site.standing, cell: (site) => html`<${Status} of=${site.standing} />` },
  { head: "Heard from", align: "one-line", by: (site) => site.seen, cell: (site) => html`<span class=${here(site, now) ? "" : "cause"}><${Time} at=${site.seen}>${ago(site.seen, now)}</${Time}></span>` },
  { head: "In work", by: (site) => (work.get(site.name) || []).length, cell: (site) => working(work.get(site.name) || []) },
  { head: "May be", cell: (site) => site.roles.join(", ") },
  { head: "Labels", cell: (site) => Object.entries(site.labels).map(([name, value]) => `${name}=${value}`).join(", ") },
  { head: "Computes on", by: (site) => site.device || "", cell: (site) => site.device ?? html`<span class="quiet">not told</span>` },
  { head: "Version", by: (site) => site.version, cell: (site) => site.version },
  { head: "Ledger", align: "right", by: (site) => site.ledger_entries, cell: (site) => (site.ledger_now === null ? site.ledger_entries ?? "–" : html`<span class="cause">differs</span>`), note: "entries that its ledger had when it told last" },
  { head: "Projects", cell: (site) => site.projects.join(", ") },
  ...(toggle ? [{ head: "Take", cell: (site) => site.standing === "approved" && html`<input type="checkbox" aria-label=${`Take ${site.name} into a run`} checked=${picked.includes(site.name)} onChange=${() => toggle(site.name)} />` }] : []),
];

const working = (orders) => (orders.length ? html`<span title=${orders.map((order) => `${order.name}: ${order.phase}, round ${order.round}`).join("; ")}>${names(orders.map((order) => order.name), 1)}</span>` : html`<span class="quiet">–</span>`);

export const path = (site, word) => `/clients/${encodeURIComponent(site.name)}/${word}`;

export function Waiting({ site }) {
  if (site.standing === "doubled")
    return html`<div class="warn"><p><strong>${site.name}</strong> is held: two agents show its keys. Stop the wrong one. The right one's log names its session.</p>
      ${may("operator") && site.doubles.map((session) => html`<${Act} label=${`Let ${session} go on`} act=${() => change("POST", path(site, "approve"), { session })} ask=${`Let the session ${session} of ${site.name} go on? The other agent ends.`} />`)}</div>`;
  return html`<div class="warn"><p><strong>${site.name}</strong> waits for approval. Compare its fingerprint with what its owner reads: <code>${site.fingerprint}</code></p>
    ${may("operator") && html`<${Act} label="Approve" kind="main" act=${() => change("POST", path(site, "approve"))} />`}</div>`;
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
