// What a rehearsal expects at a target, beside what its candidates come to there.

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { Lines } from "../charts.js";
import { curves } from "../curves.js";
import { percent } from "../words.js";

// What was expected of a target's accuracy, as a band for a chart; null where nothing tells.
export function bandOf(target) {
  if (!target || !target.accuracy) return null;
  const { value, low, high } = target.accuracy;
  return { value, low, high, words: `expected by the rehearsal: ${percent(value)} (${percent(low)} to ${percent(high)}, 90 %)` };
}

// The target of a rehearsal that a run belongs to: where it has one target, and ran what the rehearsal ran there.
export function useExpectation(id, changes) {
  const [target, setTarget] = useState(null);
  const parent = changes.runs?.get(id)?.parent ?? (/-t\d+$/.test(id) ? id.replace(/-t\d+$/, "") : null);
  useEffect(() => {
    setTarget(null);
    if (!parent) return;
    const chosen = (run) => run.verdict?.targets?.find((each) => Object.keys(each.chosen).some((name) => run.verdict.runs[name] === id));
    get(`/runs/${encodeURIComponent(parent)}`).then((run) => setTarget(chosen(run) ?? null), () => {});
  }, [id, parent]);
  return target;
}

// Curves of the candidates at a target, with the band of what is expected of the chosen one.
export function Candidates({ run }) {
  const [found, setFound] = useState([]);
  const targets = run.verdict?.targets ?? [];
  const [whose, setWhose] = useState("");
  const target = targets.find((each) => each.name === whose) ?? targets[0];
  const ran = Object.entries(run.verdict?.runs ?? {});
  useEffect(() => {
    let over = false;
    Promise.all(ran.map(([name, id]) => get(`/runs/${encodeURIComponent(id)}`).then((result) => ({ name, result }), () => null))).then((all) => over || setFound(all.filter(Boolean)));
    return () => { over = true; };
  }, [run.run, targets.length, ran.length]);
  const drawn = useMemo(() => (target ? sameAxis(found, target.name) : null), [found, target]);
  const band = useMemo(() => bandOf(target), [target]);
  if (!drawn) return null;
  const chosen = new Set(Object.keys(target.chosen));
  const lines = drawn.lines.map((line) => ({ ...line, name: chosen.has(line.name) ? `${line.name} (chosen)` : line.name, wide: chosen.has(line.name) }));
  return html`<section>
    <h2>Expected, and found</h2>
    ${targets.length > 1 && html`<p><label>Target <select value=${target.name} onChange=${(e) => setWhose(e.target.value)}>${targets.map((each) => html`<option value=${each.name}>${each.name}</option>`)}</select></label></p>`}
    <${Lines} title=${`Held-out rows of ${target.name} predicted right`} n=${`${lines.length} candidates`} x=${drawn.x} lines=${lines} share=${true} xLabel="scoring" band=${band} />
  </section>`;
}

// One line for each candidate's scorings of a site, the first to the last.
function sameAxis(found, site) {
  const lines = found
    .map(({ name, result }) => ({ name, values: curves(result)?.lines.find((line) => line.name === site)?.values ?? [] }))
    .filter((line) => line.values.length > 0);
  const longest = Math.max(0, ...lines.map((line) => line.values.length));
  if (longest < 2) return null;
  const x = Array.from({ length: longest }, (_, at) => at + 1);
  return { x, lines: lines.map((line) => ({ name: line.name, values: x.map((_, at) => line.values[at] ?? null) })) };
}
