// One run: how it stands, what it came to, and what is done with it.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { change, get, may } from "../api.js";
import { useNow } from "../changes.js";
import { Lines, Strips } from "../charts.js";
import { curves, mean, placeOf, strips } from "../curves.js";
import { follow } from "../live.js";
import { Act, Bar, ErrorBox, Status } from "../parts.js";
import { OPEN, moment, progress, standing } from "../words.js";
import { Outcome } from "./outcome.js";
import { Details } from "./details.js";

const SILENT = 8000; // milliseconds without an event after which the result is read again
const KEPT = 2000; // newest events that the page remembers
const CHANGING = new Set(["closed", "completed", "failed", "cancelled", "stalled", "resumed", "answered", "held_up"]);

// A run's result, read again when an event says that it has changed, and its newest events.
function useRun(id) {
  const [run, setRun] = useState(null);
  const [events, setEvents] = useState([]);
  const [error, setError] = useState(null);
  const due = useRef(0);
  const look = () => get(`/runs/${encodeURIComponent(id)}`).then((found) => { setRun(found); setError(null); }, setError);
  useEffect(() => {
    let waiting = [];
    let heard = Date.now();
    let over = false;
    const soon = () => {
      if (!due.current) due.current = setTimeout(() => { due.current = 0; if (!over) look(); }, 700);
    };
    const draw = () => {
      const some = waiting;
      waiting = [];
      if (some.length && !over) setEvents((before) => [...before, ...some].slice(-KEPT));
    };
    const drawing = setInterval(draw, 250);
    // Should a proxy hold events back, the result is read all the same, though more rarely.
    const reading = setInterval(() => Date.now() - heard > SILENT && look(), SILENT);
    look();
    const end = follow(`/runs/${encodeURIComponent(id)}/events`, {
      onEvent: ({ data }) => {
        heard = Date.now();
        waiting.push(data);
        if (CHANGING.has(data.kind)) soon();
      },
    });
    return () => {
      over = true;
      clearInterval(drawing);
      clearInterval(reading);
      clearTimeout(due.current);
      due.current = 0;
      end();
    };
  }, [id]);
  return { run, events, error, look };
}

export function Run({ id, changes }) {
  const { run, events, error, look } = useRun(id);
  const now = useNow(changes.drift, 1000);
  const place = useMemo(() => (run && OPEN.has(run.status) ? placeOf(events, run.clients.length) : null), [run, events]);
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
    <${Curve} run=${run} />
    ${place && place.events.length > 0 && html`<${Exchange} place=${place} now=${now} />`}
    <${Details} run=${run} events=${events} id=${id} />`;
}

function Actions({ run, look }) {
  const id = encodeURIComponent(run.run);
  if (!may("operator")) return null;
  const act = (word) => () => change("POST", `/runs/${id}/${word}`).then(look);
  return html`<span class="row">
    ${run.status === "stalled" && html`<${Act} label="Resume" act=${act("resume")} kind="main" />`}
    ${OPEN.has(run.status) && html`<${Act} label="Cancel" kind="danger" act=${act("cancel")} ask=${`Cancel “${run.name || run.run}”? Its sites give up their work. It cannot be resumed.`} />`}
    <a class="button" href=${`#/start?from=${id}`}>Start another like it</a>
  </span>`;
}

function Notes({ run }) {
  if (!run.notes.length) return null;
  return html`<ul class="notes">${run.notes.map((note) => html`<li>${note}</li>`)}</ul>`;
}

// Two points are no curve: the table of sites has them.
function Curve({ run }) {
  const [over, setOver] = useState("rounds");
  const found = useMemo(() => curves(run), [run]);
  const lines = useMemo(() => (found ? drawn(found) : []), [found]);
  if (!found || found.rounds.length < 3) return null;
  const x = over === "rounds" ? found.rounds : found.bytes;
  return html`<section>
    <h2>Accuracy while it learns</h2>
    <div class="row" role="group" aria-label="What runs along the axis">
      ${["rounds", "bytes"].map((each) => html`<button class="small" aria-pressed=${over === each} onClick=${() => setOver(each)}>over ${each === "bytes" ? "traffic" : each}</button>`)}
    </div>
    <${Lines} title="Share of held-out rows predicted right" n=${`${found.lines.length} sites, ${found.rounds.length} scorings; targets are dashed`} x=${x} lines=${lines} share=${true} xLabel=${over === "rounds" ? "round" : "MB to and from all sites"} />
  </section>`;
}

function drawn(found) {
  const targets = found.lines.filter((line) => line.role === "target");
  const made = found.lines.map((line) => ({ name: line.role === "target" ? `${line.name} (target)` : line.name, values: line.values, dash: line.role === "target", wide: line.role === "target" && targets.length === 1 }));
  return targets.length > 1 ? [...made, { name: "targets, mean", values: mean(targets), wide: true }] : made;
}

function Exchange({ place, now }) {
  const rows = strips(place.opened, place.events, now);
  if (!rows.length) return null;
  const seconds = Math.max(...rows.flatMap((row) => row.stages.map(([, , to]) => to)), 0.1);
  return html`<section>
    <h2>The exchange under way</h2>
    <${Strips} title=${`${place.phase || "exchange"}, round ${place.round}; opened ${moment(place.opened)}`} strips=${rows} seconds=${seconds} />
  </section>`;
}
