// Everything that is wrong now, on one page, with what to do.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, listed } from "../api.js";
import { useNow } from "../changes.js";
import { ErrorBox, Status } from "../parts.js";
import { ago, span } from "../words.js";

const SILENT = 90;
const SKEW = 60;

export function Doctor({ changes }) {
  const now = useNow(changes.drift);
  const [ready, setReady] = useState(null);
  const [failed, setFailed] = useState([]);
  useEffect(() => {
    const look = () => {
      get("/ready").then(() => setReady([]), (error) => setReady([error]));
      listed("/runs?newest=true&status=failed&limit=50").then(({ rows }) => setFailed(rows), () => {});
    };
    look();
    const timer = setInterval(look, 15000);
    return () => clearInterval(timer);
  }, []);
  const runs = new Map([...failed.map((run) => [run.id, run]), ...(changes.runs || [])]);
  const found = findings({ ...changes, runs }, now);
  return html`<h1>Doctor</h1>
    <p class="standing">${ready === null ? "Looking …" : ready.length + found.length ? `${ready.length + found.length} ${ready.length + found.length === 1 ? "thing needs" : "things need"} somebody.` : "All is well: the coordinator is ready, every approved site is here, and no run waits for you."}</p>
    ${(ready || []).map((error) => html`<${ErrorBox} error=${error} />`)}
    ${found.map((each) => html`<div class="finding" key=${each.key}><p><strong>${each.what}</strong></p><p>${each.todo}</p></div>`)}`;
}

function findings({ warnings, sites, runs, drift }, now) {
  const made = warnings.map((words) => ({ key: words, what: words, todo: "The manual's chapter on operating says what to do." }));
  for (const site of sites || []) {
    const link = html`<a href=${`#/sites/${encodeURIComponent(site.name)}`}>${site.name}</a>`;
    if (site.standing === "pending") made.push({ key: `p${site.name}`, what: html`${link} waits for approval`, todo: "Compare its fingerprint with its owner's, then approve it." });
    if (site.standing === "doubled") made.push({ key: `d${site.name}`, what: html`${link} is held: two agents show its keys`, todo: "Stop the wrong one, then let the right session go on." });
    if (site.standing === "approved" && now - site.seen > SILENT) made.push({ key: `s${site.name}`, what: html`${link} has not been heard from for ${span(now - site.seen)}`, todo: "Its agent may have stopped, or its network. Runs that need it wait, by their waiting rules. On its machine: tideline doctor." });
    if (site.ledger_now !== null) made.push({ key: `l${site.name}`, what: html`${link}: its ledger was cut or changed`, todo: "Ask its owner. He brings the ledger back, or goes on without: tideline site ledger accept." });
  }
  for (const run of runs ? runs.values() : []) {
    const link = html`<a href=${`#/runs/${run.id}`}>${run.name || run.id}</a>`;
    if (run.status === "stalled") made.push({ key: run.id, what: html`${link} is stalled: ${run.cause}`, todo: "Mend the cause, then resume it. Replies that came stay." });
    if (run.status === "failed" && now - run.ended < 86400) made.push({ key: run.id, what: html`${link} failed ${ago(run.ended, now)}: ${run.cause}`, todo: html`<${Status} of="failed" /> Its page has the failures of each site.` });
  }
  if (Math.abs(drift) > SKEW) made.push({ key: "drift", what: `This machine's clock and the coordinator's differ by ${span(Math.abs(drift))}`, todo: "Set both by NTP. Times on these pages are the coordinator's." });
  return made;
}
