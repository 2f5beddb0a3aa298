// Two or more runs side by side: their curves over rounds and over traffic, and a table with intervals.

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { Lines } from "../charts.js";
import { curves, mean } from "../curves.js";
import { ErrorBox, Status, Table } from "../parts.js";
import { bytes, percent, span } from "../words.js";

const MOST = 12;

export function Compare({ id = "" }) {
  const ids = [...new Set(id.split(",").filter(Boolean))].slice(0, MOST);
  const [runs, setRuns] = useState([]);
  const [errors, setErrors] = useState([]);
  const [over, setOver] = useState("rounds");
  const [whose, setWhose] = useState("target");
  useEffect(() => {
    Promise.allSettled(ids.map((each) => get(`/runs/${encodeURIComponent(each)}`))).then((found) => {
      setRuns(found.filter((each) => each.status === "fulfilled").map((each) => each.value));
      setErrors(found.filter((each) => each.status === "rejected").map((each) => each.reason));
    });
  }, [id]);
  const drawn = useMemo(() => aligned(runs, over, whose), [runs, over, whose]);
  const called = titles(runs);
  const sites = [...new Set(runs.flatMap((run) => run.clients.map((client) => client.name)))].sort();
  return html`<h1>Compare ${ids.length} runs</h1>
    ${errors.map((error) => html`<${ErrorBox} error=${error} />`)}
    ${runs.length > 0 && html`
    <${Table} label="The runs" cards=${true} rows=${runs} name=${(run) => run.run} columns=${[
      { head: "Run", cell: (run) => html`<a href=${`#/runs/${run.run}`}>${called.get(run.run)}</a>` },
      { head: "Method", by: (run) => run.method, cell: (run) => html`<code>${run.method}</code>` },
      { head: "Status", cell: (run) => html`<${Status} of=${run.status} />` },
      { head: "Targets, mean", align: "right", by: (run) => averageOf(run, "target"), cell: (run) => percent(averageOf(run, "target")) },
      { head: "Sources, mean", align: "right", by: (run) => averageOf(run, "source"), cell: (run) => percent(averageOf(run, "source")) },
      { head: "Traffic", align: "right", by: traffic, cell: (run) => bytes(traffic(run)) },
      { head: "Took", align: "right", by: (run) => run.seconds, cell: (run) => span(run.seconds) },
    ]} />
    <h2>Site by site</h2>
    <${Table} label="Accuracy by site and run" rows=${sites} name=${(name) => name} columns=${[
      { head: "Site", by: (name) => name, cell: (name) => name },
      ...runs.map((run) => ({ head: called.get(run.run), align: "right", by: (name) => siteOf(run, name)?.accuracy, cell: (name) => cell(run, name) })),
    ]} />
    <p class="quiet">Where two intervals do not overlap, the runs differ there by more than chance.</p>
    <div class="row" role="group" aria-label="What the curves show">
      ${["rounds", "traffic"].map((each) => html`<button class="small" aria-pressed=${over === each} onClick=${() => setOver(each)}>over ${each}</button>`)}
      ${["target", "source"].map((each) => html`<button class="small" aria-pressed=${whose === each} onClick=${() => setWhose(each)}>${each}s</button>`)}
    </div>
    ${drawn ? html`<${Lines} title=${`Mean accuracy of the ${whose}s`} n=${`${drawn.lines.length} runs`} x=${drawn.x} lines=${drawn.lines} share=${true} xLabel=${over === "rounds" ? "round" : "MB to and from all sites"} />` : html`<p class="quiet">None of them has scored ${whose}s in three rounds or more.</p>`}`}`;
}

// Names, and the ids of those that share one.
function titles(runs) {
  const names = runs.map((run) => run.name);
  return new Map(runs.map((run) => [run.run, names.filter((name) => name === run.name).length > 1 ? `${run.name} (${run.run.slice(0, 6)})` : run.name]));
}

const siteOf = (run, name) => run.clients.find((client) => client.name === name);
const traffic = (run) => run.clients.reduce((sum, client) => sum + client.bytes_up + client.bytes_down, 0);

function averageOf(run, role) {
  const known = run.clients.filter((client) => client.role === role && client.accuracy !== null);
  return known.length ? known.reduce((sum, client) => sum + client.accuracy, 0) / known.length : null;
}

function cell(run, name) {
  const client = siteOf(run, name);
  const sure = run.scores[name]?.accuracy;
  if (!client || client.accuracy === null) return "–";
  return html`${percent(client.accuracy)}${sure && html`<br /><span class="quiet">${percent(sure.low)} to ${percent(sure.high)}</span>`}`;
}

// Every run's mean on one axis; a run without a value there has a gap.
function aligned(runs, over, whose) {
  const called = titles(runs);
  const each = runs.map((run) => {
    const found = curves(run);
    const lines = found ? found.lines.filter((line) => line.role === whose) : [];
    return lines.length && found.rounds.length > 2 ? { name: called.get(run.run), x: over === "rounds" ? found.rounds : found.bytes, y: mean(lines) } : null;
  }).filter(Boolean);
  if (!each.length) return null;
  const x = [...new Set(each.flatMap((line) => line.x))].sort((one, other) => one - other);
  const lines = each.map((line) => {
    const at = new Map(line.x.map((value, index) => [value, line.y[index]]));
    return { name: line.name, values: x.map((value) => at.get(value) ?? null), wide: true, dash: each.indexOf(line) % 2 === 1 };
  });
  return { x, lines };
}
