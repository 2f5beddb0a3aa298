// What a run came to, in three sentences and with intervals, then site by site.

import { html } from "../vendor/preact.js";
import { Intervals } from "../charts.js";
import { Bar, Table } from "../parts.js";
import { OPEN, bytes, count, names, percent, points } from "../words.js";

const score = (run, name) => run.scores[name]?.accuracy;

// The targets' gain over no adaptation, where both are known: the sentence that a reader looks for first.
export function meaning(run) {
  const targets = run.clients.filter((client) => client.role === "target" && client.accuracy !== null);
  const sentences = targets.slice(0, 3).map((client) => {
    const sure = score(run, client.name);
    const within = sure ? ` (${percent(sure.low)} to ${percent(sure.high)}, ${sure.rows} held-out rows)` : "";
    const before = client.source_only;
    if (before === null || before === client.accuracy) return `${client.name}: ${percent(client.accuracy)} of held-out rows are predicted right${within}.`;
    const gain = client.accuracy - before;
    const word = gain >= 0 ? "more" : "fewer";
    return `${client.name}: ${percent(client.accuracy)} of held-out rows are predicted right${within}, ${Math.abs(100 * gain).toFixed(1)} points ${word} than without adaptation (${percent(before)}).`;
  });
  return [...sentences, ...transfer(run, targets)];
}

// Whether adaptation did harm, as far as held-out rows tell.
function transfer(run, targets) {
  const known = targets.filter(adapted);
  const worse = known.filter((client) => client.accuracy < client.source_only);
  const sure = worse.filter((client) => score(run, client.name) && client.source_only > score(run, client.name).high);
  const maybe = worse.filter((client) => !sure.includes(client));
  const made = [];
  if (sure.length) made.push(`Negative transfer: adaptation made ${names(sure.map((client) => client.name))} worse, by more than chance. Do not use this model there.`);
  if (maybe.length) made.push(`Adaptation may have made ${names(maybe.map((client) => client.name))} worse. Its held-out rows are too few to be sure; without adaptation you risk less.`);
  if (known.length && !worse.length) made.push(`No negative transfer: adaptation made no target worse${known.length < targets.length ? " of those that can be compared" : ""}.`);
  return made;
}

export function Outcome({ run }) {
  const sentences = meaning(run);
  const scored = run.clients.filter((client) => client.accuracy !== null);
  return html`<section>
    ${sentences.length > 0 && html`<div class="meaning">${sentences.map((each) => html`<p class=${each.startsWith("Negative") ? "cause" : ""}>${each}</p>`)}${OPEN.has(run.status) && html`<p class="quiet">So far; the run goes on.</p>`}</div>`}
    <${Verdict} run=${run} />
    ${scored.length > 0 && scored.length <= 40 && html`<${Intervals}
      title=${`Held-out rows predicted right${scored.some((client) => score(run, client.name)) ? ", with 95 % intervals" : ""}`}
      rows=${scored.map((client) => ({ name: client.name, mark: client.role === "target", value: client.accuracy, low: score(run, client.name)?.low, high: score(run, client.name)?.high, other: adapted(client) ? client.source_only : null }))}
      note=${`◆ marks targets${scored.some(adapted) ? "; a bar is the accuracy without adaptation" : ""}.`} />`}
    <h2>Sites</h2>
    <${Table} label="Sites of the run" cards=${true} rows=${run.clients} name=${(client) => client.name} columns=${columns(run)} />
  </section>`;
}

function state(run, client) {
  if (client.declined) return html`<span class="cause">declined: ${client.declined}</span>`;
  const waits = (run.awaited || []).find((each) => each.client === client.name);
  if (waits) return waits.held ? `waits: ${waits.held}` : html`<${Bar} share=${waits.progress} label=${`${client.name}: ${Math.round(100 * waits.progress)} % of its step`} />`;
  const missed = client.failures.length;
  return missed ? html`<span class="cause" title=${client.failures.at(-1).what}>${count(missed, "answer")} missed: ${client.failures.at(-1).kind}</span>` : OPEN.has(run.status) ? "answered" : "";
}

const adapted = (client) => client.source_only !== null && client.source_only !== client.accuracy;

const columns = (run) => [
  { head: "Site", by: (client) => client.name, cell: (client) => html`<a href=${`#/sites/${encodeURIComponent(client.name)}`}>${client.name}</a>` },
  { head: "Role", by: (client) => client.role, cell: (client) => (client.role === "target" ? html`<strong>target</strong>` : client.role) },
  { head: "Rows", align: "right", by: (client) => client.samples, cell: (client) => client.samples?.toLocaleString() ?? "–", note: "training rows" },
  { head: "Accuracy", align: "right", by: (client) => client.accuracy, cell: (client) => percent(client.accuracy) },
  { head: "95 % interval", align: "right", cell: (client) => (score(run, client.name) ? `${percent(score(run, client.name).low)} to ${percent(score(run, client.name).high)}` : "–") },
  ...(run.clients.some(adapted) ? GAINS : []),
  ...(run.clients.some((client) => client.epsilon != null) ? [EPSILON] : []),
  { head: "Sent", align: "right", by: (client) => client.bytes_up, cell: (client) => bytes(client.bytes_up), note: "bytes that left the site" },
  { head: "Received", align: "right", by: (client) => client.bytes_down, cell: (client) => bytes(client.bytes_down) },
  { head: "State", cell: (client) => state(run, client) },
];

const EPSILON = { head: "Epsilon", align: "right", by: (client) => client.epsilon, cell: (client) => client.epsilon?.toFixed(2) ?? "–", note: "what the run has cost a row of the site so far, at most" };

// Only where there is something to compare: a run without adaptation is its own reference.
const GAINS = [
  { head: "Without adaptation", align: "right", by: (client) => client.source_only, cell: (client) => percent(client.source_only) },
  { head: "Gain, points", align: "right", by: (client) => (client.accuracy === null || client.source_only === null ? null : client.accuracy - client.source_only), cell: (client) => (client.accuracy === null || client.source_only === null ? "–" : points(client.accuracy - client.source_only)) },
];

function Verdict({ run }) {
  const said = run.verdict;
  const gains = Object.entries(said?.gains || {});
  if (!said?.targets || !(said.targets.length || gains.length)) return null;
  const found = new Map(run.clients.map((client) => [client.name, client]));
  return html`<div class="meaning">
    <h2>What the rehearsal says</h2>
    ${said.targets.map((target) => html`<p>
      ${target.name}: take <strong>${names(Object.keys(target.chosen), 5)}</strong>
      ${target.gain && html`, expect ${points(target.gain.value)} points (${points(target.gain.low)} to ${points(target.gain.high)})`}
      ${target.accuracy && html`, accuracy ${percent(target.accuracy.value)} (${percent(target.accuracy.low)} to ${percent(target.accuracy.high)})`}.
      ${found.get(target.name)?.accuracy != null && html` Found: ${percent(found.get(target.name).accuracy)}.`}
      ${target.trust !== "rehearsed" && html` <span class="cause">${target.trust}</span>`}
    </p>`)}
    ${gains.length > 0 && html`<${Table} label="What candidates gained where they were rehearsed" rows=${gains} name=${([name]) => name} columns=${[
      { head: "Candidate", cell: ([name]) => name },
      { head: "Mean gain, points", align: "right", by: ([, gain]) => gain.value, cell: ([, gain]) => points(gain.value) },
      { head: "95 % interval", align: "right", cell: ([, gain]) => `${points(gain.low)} to ${points(gain.high)}` },
    ]} />`}
  </div>`;
}
