// One run: how it stands, what it came to, and what is done with it.

import { html, useMemo, useState } from "../vendor/preact.js";
import { change, may } from "../api.js";
import { useNow } from "../changes.js";
import { Lines } from "../charts.js";
import { curves, mean, placeOf } from "../curves.js";
import { useRun } from "../following.js";
import { Act, Bar, Code, ErrorBox, Status } from "../parts.js";
import { OPEN, progress, standing } from "../words.js";
import { Outcome } from "./outcome.js";
import { Candidates, bandOf, useExpectation } from "./expected.js";
import { Exchanges } from "./exchanges.js";
import { Graphs } from "./graphs.js";
import { Details } from "./details.js";

export function Run({ id, changes }) {
  const { run, orders, events, error, look } = useRun(id);
  const now = useNow(changes.drift, 1000);
  const expected = useExpectation(id, changes);
  const place = useMemo(() => (run && OPEN.has(run.status) ? placeOf(orders) : null), [run, orders]);
  if (!run) return error ? html`<h1>Run ${id}</h1><${ErrorBox} error=${error} />` : html`<h1>Run ${id}</h1><p class="quiet">Loading …</p>`;
  const line = { status: run.status, cursor: run.cursor, of: run.plan_length };
  return html`
    <div class="title">
      <h1>${run.name || `Run ${id}`}</h1><${Status} of=${run.status} />
      <${Actions} run=${run} look=${look} />
    </div>
    <p class="standing" aria-live="polite">${standing(run, place, now)}</p>
    ${OPEN.has(run.status) && html`<${Bar} share=${progress(line)} label=${`${Math.max(0, run.cursor)} of ${run.plan_length} exchanges`} />`}
    <p class="quiet"><code>${id}</code> · <code>${run.method}</code> · project ${run.project} · seed ${run.seed}${run.reference && html` · compared with <a href=${`#/runs/${run.reference}`}>${run.reference}</a>`}</p>
    <${ErrorBox} error=${error} />
    <${Notes} run=${run} />
    <${Outcome} run=${run} />
    <${Candidates} run=${run} />
    <${Curve} run=${run} expected=${expected} />
    <${Graphs} run=${run} />
    <${Exchanges} key=${id} run=${run} orders=${orders} events=${events} now=${now} />
    <${Details} run=${run} events=${events} />`;
}

function Actions({ run, look }) {
  const id = encodeURIComponent(run.run);
  if (!may("operator")) return html`<span class="row"><${Export} run=${run} /></span>`;
  const act = (word) => () => change("POST", `/runs/${id}/${word}`).then(look);
  return html`<span class="row">
    ${run.status === "stalled" && html`<${Act} label="Resume" act=${act("resume")} kind="main" /><${Fewer} run=${run} look=${look} />`}
    ${OPEN.has(run.status) && html`<${Act} label="Cancel" kind="danger" act=${act("cancel")} ask=${`Cancel “${run.name || run.run}”? Its sites give up their work. It cannot be resumed.`} />`}
    <a class="button" href=${`#/start?from=${id}`}>Clone and edit</a>
    <${Export} run=${run} />
  </span>`;
}

// A stalled run goes on without a site that does not come back.
function Fewer({ run, look }) {
  const most = run.clients.length;
  const [enough, setEnough] = useState(Math.max(1, most - 1));
  const resume = () => change("POST", `/runs/${encodeURIComponent(run.run)}/resume`, { min_replies: enough }).then(look);
  return html`<details class="menu"><summary>Resume with fewer</summary><div>
    <p>Without a site that does not come back. <a href="#/sites">Revoke it</a> first, so that no round waits for it until its deadline.</p>
    <label>Replies that are enough in a round from now on <input type="number" min="1" max=${most} value=${enough} onInput=${(e) => setEnough(Number(e.target.value))} /></label>
    <${Act} label=${`Resume with ${enough} of ${most}`} act=${resume} kind="main" />
  </div></details>`;
}

// What a run leaves: its result at once, the model and the report by commands, which put them together from its parts.
function Export({ run }) {
  const done = run.status === "completed";
  const site = run.verdict?.targets?.length > 1 ? " --site TARGET" : "";
  const commands = `export TIDELINE_URL=${location.origin}
${done ? `tideline run export ${run.run}${site} --out model.safetensors
` : ""}tideline run report ${run.run} --out report
tideline run dossier ${run.run} --out dossier.zip
`;
  return html`<details class="menu export"><summary>Export</summary><div>
    <p><a href=${`/runs/${encodeURIComponent(run.run)}?history=true`} download=${`${run.run}.json`}>The result, as JSON</a></p>
    <p><a href=${`/runs/${encodeURIComponent(run.run)}/dossier`} download=${`dossier-${run.run}.zip`}>The dossier${done ? "" : " so far"}, signed</a>: what left each site, for who is responsible for the data</p>
    <p>${done ? "The model, the report and the dossier" : "The report and the dossier so far"}, on a machine with the command line and a key (<code>TIDELINE_API_KEY</code>):</p>
    <${Code} text=${commands} label="Commands" />
    ${!done && html`<p class="quiet">There is a model once the run has completed.</p>`}
  </div></details>`;
}

function Notes({ run }) {
  if (!run.notes.length) return null;
  return html`<ul class="notes">${run.notes.map((note) => html`<li>${note}</li>`)}</ul>`;
}

// Two points are no curve: the table of sites has them.
function Curve({ run, expected }) {
  const [over, setOver] = useState("rounds");
  const found = useMemo(() => curves(run), [run]);
  const lines = useMemo(() => (found ? drawn(found) : []), [found]);
  const band = useMemo(() => bandOf(expected), [expected]);
  if (!found || found.rounds.length < 3) return null;
  const x = over === "rounds" ? found.rounds : found.bytes;
  return html`<section>
    <h2>Accuracy while it learns</h2>
    <div class="row" role="group" aria-label="What runs along the axis">
      ${["rounds", "bytes"].map((each) => html`<button class="small" aria-pressed=${over === each} onClick=${() => setOver(each)}>over ${each === "bytes" ? "traffic" : each}</button>`)}
    </div>
    <${Lines} title="Share of held-out rows predicted right" n=${`${found.lines.length} sites, ${found.rounds.length} scorings; targets are dashed`} x=${x} lines=${lines} share=${true} xLabel=${over === "rounds" ? "round" : "MB to and from all sites"} band=${band} />
  </section>`;
}

function drawn(found) {
  const targets = found.lines.filter((line) => line.role === "target");
  const made = found.lines.map((line) => ({ name: line.role === "target" ? `${line.name} (target)` : line.name, values: line.values, dash: line.role === "target", wide: line.role === "target" && targets.length === 1 }));
  return targets.length > 1 ? [...made, { name: "targets, mean", values: mean(targets), wide: true }] : made;
}
