// Small curves for the list: the mean accuracy of a run's targets, or of its sites where it has none.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { curves, mean } from "./curves.js";
import { percent } from "./words.js";

const MOST = 25; // runs that are looked into: those at the top of the list
const PAUSE = 10000; // milliseconds after which an open run is looked into again

// By run: {values, last, whose}. Looked up one after the other, so that a long list costs the coordinator little at a time.
export function useSparks(rows) {
  const [found, setFound] = useState({});
  const known = useRef(new Map());
  const top = rows.slice(0, MOST);
  useEffect(() => {
    let over = false;
    (async () => {
      for (const run of top) {
        const before = known.current.get(run.id);
        if (before && (before.cursor === run.cursor || Date.now() - before.at < PAUSE)) continue;
        const made = await get(`/runs/${run.id}`).then(sparkOf, () => null);
        if (over) return;
        known.current.set(run.id, { cursor: run.cursor, at: Date.now() });
        setFound((others) => ({ ...others, [run.id]: made }));
      }
    })();
    return () => { over = true; };
  }, [top.map((run) => `${run.id}${run.cursor}`).join()]);
  return found;
}

function sparkOf(run) {
  const drawn = curves(run);
  if (!drawn) return null;
  const targets = drawn.lines.filter((line) => line.role === "target");
  const values = mean(targets.length ? targets : drawn.lines).filter((value) => value !== null);
  return values.length ? { values, last: values.at(-1), whose: targets.length ? "targets" : "sites" } : null;
}

export function Spark({ of }) {
  if (!of) return html`<span class="quiet">–</span>`;
  const { values, last, whose } = of;
  const x = (at) => (values.length > 1 ? (at * 60) / (values.length - 1) : 30);
  const y = (value) => 15 - 14 * value;
  return html`<span class="spark"><svg viewBox="0 0 60 16" aria-hidden="true">${values.length > 2 && html`<polyline points=${values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ")} />`}<circle cx=${values.length > 2 ? 60 : 30} cy=${y(last)} r="1.6" /></svg> ${percent(last)}<span class="quiet"> ${whose}</span></span>`;
}
