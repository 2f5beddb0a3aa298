// A table of weights from rows to columns as arrows: senders left, receivers right.

import { html } from "../vendor/preact.js";

const MOST = 40;

export function Flows({ table }) {
  const rows = Object.keys(table.rows || {});
  const columns = table.columns || [];
  const links = rows.flatMap((from) => columns.map((to, at) => ({ from, to, weight: table.rows[from][at] })).filter((link) => link.weight > 0));
  if (!links.length) return html`<p>No link has a weight above zero.</p>`;
  const senders = [...new Set(links.map((link) => link.from))];
  const receivers = [...new Set(links.map((link) => link.to))];
  if (senders.length > MOST || receivers.length > MOST) return html`<p class="quiet">${links.length} links; too many to draw.</p>`;
  const height = Math.max(senders.length, receivers.length) * 5 + 4;
  const y = (list, name) => ((list.indexOf(name) + 0.5) * height) / list.length;
  const most = Math.max(...links.map((link) => link.weight));
  return html`<svg class="flows" viewBox=${`0 0 100 ${height}`} role="img" aria-label=${links.map((link) => `${link.from} to ${link.to}: ${link.weight.toFixed(2)}`).join("; ")}>
    ${links.map((link) => html`<path class="link" d=${`M30 ${y(senders, link.from)} C50 ${y(senders, link.from)} 50 ${y(receivers, link.to)} 70 ${y(receivers, link.to)}`} stroke-width=${0.2 + (1.4 * link.weight) / most}><title>${link.from} to ${link.to}: ${link.weight.toFixed(3)}</title></path>`)}
    ${senders.map((name) => html`<text class="name end" x="28" y=${y(senders, name) + 0.8}>${name.slice(0, 22)}</text>`)}
    ${receivers.map((name) => html`<text class="name" x="72" y=${y(receivers, name) + 0.8}>${name.slice(0, 22)}</text>`)}
  </svg>
  <p class="quiet">Thicker is heavier. Point at a line to read its weight.</p>`;
}
