// Who did what, and when, in one exchange: the one under way, or any that was.

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { placeOf, strips } from "../curves.js";
import { eventsOf, ordersOf } from "../following.js";
import { Strips } from "../charts.js";
import { ErrorBox, Table } from "../parts.js";
import { OPEN, bytes, moment, span } from "../words.js";

const MOST = 40; // strips that are drawn: those that took longest
const LONGEST = 1000; // events that are read of an exchange that is over

// Of an exchange that was, its orders and its notes. `cursor`: its place in the plan; null: nothing is asked for.
function usePast(id, cursor) {
  const [past, setPast] = useState({ cursor: null, orders: [], events: [], error: null });
  useEffect(() => {
    if (cursor === null) return undefined;
    let over = false;
    (async () => {
      const orders = await ordersOf(id, cursor);
      const events = orders.length ? await eventsOf(id, `since=${placeOf(orders).opened}&limit=${LONGEST}`) : [];
      if (!over) setPast({ cursor, orders, events, error: null });
    })().catch((error) => over || setPast({ cursor, orders: [], events: [], error }));
    return () => { over = true; };
  }, [id, cursor]);
  return past;
}

// Places of the plan that closed, each with its phase: the join is at -1, and folds that asked nobody are left out.
const places = (run) => run.phases.map((phase, at) => ({ cursor: at - 1, phase })).filter(({ phase }) => phase.asked > 0);

export function Exchanges({ run, orders, events, now }) {
  const closed = places(run);
  const open = OPEN.has(run.status) ? placeOf(orders) : null;
  const newest = open ? null : (closed.at(-1)?.cursor ?? null);
  const [chosen, choose] = useState(null);
  const cursor = chosen ?? newest;
  const past = usePast(run.run, cursor);
  const shown = cursor === null ? orders : past.cursor === cursor ? past.orders : [];
  const rows = useMemo(() => strips(shown, cursor === null ? events : past.events, now), [shown, past, cursor === null && events, cursor === null && now]);
  if (!open && !closed.length) return null;
  const named = [...closed.map(({ cursor: at, phase }) => ({ at, word: `${phase.name}, round ${phase.round}${phase.seconds === null ? "" : `: ${span(phase.seconds)}`}` })).reverse()];
  const list = named.map(({ at }) => at);
  const at = list.indexOf(cursor);
  const older = cursor === null ? list[0] : list[at + 1];
  const newer = at > 0 ? list[at - 1] : at === 0 && open ? null : undefined;
  return html`<section>
    <h2>Who did what, and when</h2>
    <div class="row">
      <label>Exchange <select value=${String(cursor)} onChange=${(e) => choose(e.target.value === "null" ? null : Number(e.target.value))}>
        ${open && html`<option value="null">under way: ${open.phase}, round ${open.round}</option>`}
        ${named.map((each) => html`<option value=${String(each.at)}>${each.word}</option>`)}
      </select></label>
      <button class="small" disabled=${older === undefined} onClick=${() => choose(older)}>Earlier</button>
      <button class="small" disabled=${newer === undefined} onClick=${() => choose(newer)}>Later</button>
    </div>
    <${ErrorBox} error=${cursor === null ? null : past.error} />
    ${rows.length > 0 && html`<${Drawn} rows=${rows} orders=${shown} />`}
    ${rows.length === 0 && cursor !== null && past.cursor === cursor && !past.error && html`<p class="quiet">Nothing is kept of its orders.</p>`}
  </section>`;
}

function Drawn({ rows, orders }) {
  const seconds = Math.max(...rows.map((row) => row.end), 0.1);
  const drawn = rows.length > MOST ? [...rows].sort((one, other) => other.end - one.end).slice(0, MOST) : rows;
  return html`
    <${Strips} title=${`Seconds since it opened, ${moment(placeOf(orders).opened)}${drawn.length < rows.length ? `; the ${MOST} that took longest, of ${rows.length}` : ""}`} strips=${drawn} seconds=${seconds} />
    <details class="numbers"><summary>The orders</summary><${Table} label="Orders" cards=${true} rows=${orders} name=${(order) => `${order.client} ${order.attempt}`} columns=${COLUMNS} /></details>`;
}

const COLUMNS = [
  { head: "Site", by: (order) => order.client, cell: (order) => order.client },
  { head: "Try", align: "right", by: (order) => order.attempt, cell: (order) => order.attempt },
  { head: "Status", by: (order) => order.status, cell: (order) => (order.held ? `${order.status}, held: ${order.held}` : order.status) },
  { head: "Took", align: "right", by: (order) => order.answered - order.created, cell: (order) => (order.answered === null ? "–" : `${(order.answered - order.created).toFixed(1)} s`) },
  ...[["Queued", (o) => o.stages.fetching - o.created], ["Fetching", (o) => o.stages.computing - o.stages.fetching], ["Computing", (o) => o.stages.sending - o.stages.computing], ["Sending", (o) => o.answered - o.stages.sending]].map(([head, took]) => ({
    head,
    align: "right",
    by: (order) => (order.stages ? took(order) : -1),
    cell: (order) => (order.stages ? `${took(order).toFixed(1)} s` : "–"),
  })),
  { head: "Fetched", align: "right", by: (order) => order.bytes_down, cell: (order) => bytes(order.bytes_down) },
  { head: "Sent", align: "right", by: (order) => order.bytes_up, cell: (order) => bytes(order.bytes_up) },
  { head: "Why not", cell: (order) => (order.failure ? html`<span class="cause">${order.failure.kind}: ${order.failure.what}</span>` : "") },
];
