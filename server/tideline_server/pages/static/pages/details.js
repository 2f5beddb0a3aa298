// What few readers need, folded: the contract, more scores, groups, tables, rounds, events and settings.

import { html, useState } from "../vendor/preact.js";
import { Code, Table } from "../parts.js";
import { bytes, moment, percent, span } from "../words.js";
import { yaml } from "../yaml.js";
import { experimentOf } from "../experiments.js";

export function Details({ run, events }) {
  return html`<section class="folds">
    <${Fold} title="What leaves the sites, in words"><${Contract} run=${run} /></${Fold}>
    ${Object.keys(run.scores).length > 0 && html`<${Fold} title="More scores"><${Scores} run=${run} /></${Fold}>`}
    ${run.phases.length > 0 && html`<${Fold} title=${`Exchanges (${run.phases.length})`}><${Rounds} run=${run} /></${Fold}>`}
    <${Fold} title="Events"><${Events} events=${events} /></${Fold}>
    <${Fold} title="Settings"><${Code} label="The experiment" text=${yaml(experimentOf(run))} /></${Fold}>
  </section>`;
}

function Fold({ title, children }) {
  const [seen, setSeen] = useState(false);
  return html`<details onToggle=${(e) => e.currentTarget.open && setSeen(true)}><summary>${title}</summary>${seen && children}</details>`;
}

const EXPOSURE = {
  metric: "a number about how well it went",
  count: "a count of rows",
  weights: "a model's weights: much about single rows can be read out of these",
  statistic: "statistics of rows",
  synthetic: "rows that were made, not recorded",
  features: "features of single rows",
  samples: "rows themselves",
};

function Contract({ run }) {
  return html`<${Table} label="The contract" cards=${true} rows=${run.contract} name=${(clause) => `${clause.phase} ${clause.field}`} columns=${[
    { head: "Field", cell: (clause) => html`<code>${clause.field}</code>` },
    { head: "In", cell: (clause) => clause.phase },
    { head: "What it is", cell: (clause) => clause.doc },
    { head: "What it tells", by: (clause) => clause.exposure, cell: (clause) => EXPOSURE[clause.exposure] || clause.exposure },
    { head: "Who gets it", cell: (clause) => [].concat(clause.audience).join(" and ") },
  ]} />`;
}

function Scores({ run }) {
  const heads = [...new Set(Object.values(run.scores).flatMap(Object.keys))];
  const cell = (found) => (found ? html`${percent(found.value)}<br /><span class="quiet">${percent(found.low)} to ${percent(found.high)}</span>` : "–");
  return html`<${Table} label="Scores by site" rows=${Object.entries(run.scores)} name=${([name]) => name} columns=${[{ head: "Site", cell: ([name]) => name }, ...heads.map((head) => ({ head: head.replaceAll("_", " "), align: "right", by: ([, found]) => found[head]?.value, cell: ([, found]) => cell(found[head]) }))]} />
    ${Object.keys(run.recall).length > 0 && html`<h3>Recall by class, over all sites</h3><${Table} label="Recall by class" rows=${Object.entries(run.recall)} name=${([name]) => name} columns=${[
      { head: "Class", cell: ([name]) => name },
      { head: "Recall", align: "right", by: ([, found]) => found.value, cell: ([, found]) => percent(found.value) },
      { head: "95 % interval", align: "right", cell: ([, found]) => `${percent(found.low)} to ${percent(found.high)}` },
      { head: "Rows", align: "right", by: ([, found]) => found.rows, cell: ([, found]) => found.rows },
    ]} />`}`;
}

const MOST = 300;

function Rounds({ run }) {
  const rows = run.phases.map((phase, at) => ({ ...phase, at })).slice(-MOST).reverse();
  return html`<${Table} label="Exchanges" rows=${rows} name=${(row) => row.at} columns=${[
    { head: "Phase", cell: (row) => row.name },
    { head: "Round", align: "right", by: (row) => row.round, cell: (row) => row.round },
    { head: "Took", align: "right", by: (row) => row.seconds, cell: (row) => span(row.seconds) },
    { head: "Answers", align: "right", cell: (row) => `${row.replies} of ${row.asked}` },
    { head: "To sites", align: "right", by: (row) => row.bytes_down, cell: (row) => bytes(row.bytes_down) },
    { head: "From sites", align: "right", by: (row) => row.bytes_up, cell: (row) => bytes(row.bytes_up) },
    { head: "Marks", cell: (row) => Object.entries(row.marks || {}).map(([word, who]) => `${word}: ${who.join(", ")}`).join("; ") },
  ]} />`;
}

function Events({ events }) {
  const rows = events.slice(-MOST).reverse();
  const words = (event) => event.data.what || [event.data.kind, event.data.reason, event.data.by].filter(Boolean).join(", ");
  if (!rows.length) return html`<p class="quiet">None is kept.</p>`;
  return html`${rows[0].seq > rows.length && html`<p class="quiet">The newest ${rows.length}. <code>GET /runs/RUN/events</code> has all ${rows[0].seq}.</p>`}
  <${Table} label="Events" cards=${true} rows=${rows} name=${(event) => event.seq} columns=${[
    { head: "No.", align: "right", cell: (event) => event.seq },
    { head: "When", align: "one-line", cell: (event) => moment(event.at) },
    { head: "What", cell: (event) => event.kind },
    { head: "Site", cell: (event) => event.data.client || "" },
    { head: "Where", cell: (event) => (event.data.phase ? `${event.data.phase}, ${event.data.round}` : "") },
    { head: "In words", cell: words },
  ]} />`;
}
