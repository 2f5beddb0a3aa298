// What a list shows of a run beside its line: a small curve, and whom it waits for.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { curves, mean, placeOf } from "./curves.js";
import { ordersOf } from "./following.js";
import { OPEN, names, percent, span } from "./words.js";

const MOST = 25; // runs that are looked into: those at the top of the list
const PAUSE = 10000; // milliseconds after which an open run is looked into again

// By run: {values, last, whose, selection, awaited}. One after the other, so that a long list costs the coordinator little at a time.
export function useSparks(rows) {
  const [found, setFound] = useState({});
  const known = useRef(new Map());
  const top = rows.slice(0, MOST);
  useEffect(() => {
    let over = false;
    (async () => {
      for (const run of top) {
        const before = known.current.get(run.id);
        if (before && (before.at_cursor === `${run.cursor} ${run.status}` || Date.now() - before.read < PAUSE)) continue;
        const result = await get(`/runs/${encodeURIComponent(run.id)}`).catch(() => null);
        const orders = OPEN.has(run.status) ? await ordersOf(run.id).catch(() => []) : [];
        if (over) return;
        known.current.set(run.id, { at_cursor: `${run.cursor} ${run.status}`, read: Date.now() });
        setFound((others) => ({ ...others, [run.id]: { ...(result && sparkOf(result)), awaited: awaitedOf(orders) } }));
      }
    })();
    return () => { over = true; };
  }, [top.map((run) => `${run.id}${run.cursor}${run.status}`).join()]);
  return found;
}

function sparkOf(run) {
  const selection = run.selection && run.selection.best ? { score: run.selection.score, value: run.selection.best.value, round: run.selection.best.round } : null;
  const drawn = curves(run);
  if (!drawn) return { selection };
  const targets = drawn.lines.filter((line) => line.role === "target");
  const values = mean(targets.length ? targets : drawn.lines).filter((value) => value !== null);
  return values.length ? { values, last: values.at(-1), whose: targets.length ? "targets" : "sites", selection } : { selection };
}

function awaitedOf(orders) {
  const place = placeOf(orders);
  const open = orders.filter((order) => order.status === "open");
  return place && open.length ? { who: open.map((order) => order.client), since: Math.min(...open.map((order) => order.created)), held: open.find((order) => order.held)?.held ?? "" } : null;
}

export function Awaited({ of, now }) {
  if (!of?.awaited) return null;
  const { who, since, held } = of.awaited;
  return html`<br /><span class="quiet">for ${names(who, 2)}, ${span(Math.max(0, now - since))}${held && ` (held: ${held})`}</span>`;
}

export function Spark({ of }) {
  if (!of?.values && !of?.selection) return html`<span class="quiet">–</span>`;
  const best = of.selection && html`<br /><span class="quiet">best ${of.selection.score.replaceAll("_", " ")} ${of.selection.value.toFixed(3)}, round ${of.selection.round}</span>`;
  if (!of.values) return best;
  const { values, last, whose } = of;
  const x = (at) => (values.length > 1 ? (at * 60) / (values.length - 1) : 30);
  const y = (value) => 15 - 14 * value;
  return html`<span class="spark"><svg viewBox="0 0 60 16" aria-hidden="true">${values.length > 2 && html`<polyline points=${values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ")} />`}<circle cx=${values.length > 2 ? 60 : 30} cy=${y(last)} r="1.6" /></svg> ${percent(last)}<span class="quiet"> ${whose}</span></span>${best}`;
}
