// Groups and links of a result, where its method reports any.

import { html } from "../vendor/preact.js";
import { Flows, Groups } from "./flows.js";

// The newest table of each name that is drawn as a graph.
function linked(run) {
  const found = new Map();
  for (const phase of run.phases) for (const [name, table] of Object.entries(phase.tables || {})) if (table.drawn === "graph") found.set(name, { name, table, round: phase.round });
  return [...found.values()];
}

export function Graphs({ run }) {
  const tables = linked(run);
  const groups = run.groups && Object.keys(run.groups.last).length ? run.groups.last : null;
  if (!tables.length && !groups) return null;
  return html`<section>
    ${tables.map(({ name, table, round }) => html`<h2>Who learns from whom</h2><p class="quiet">${name}, round ${round}</p><${Flows} table=${table} />`)}
    ${groups && html`<h2>Groups of sites</h2><${Groups} groups=${groups} />`}
  </section>`;
}
