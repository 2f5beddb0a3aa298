// Graphs of a result: weights from rows to columns as arrows, and groups of sites as boxes.

import { html, useMemo } from "../vendor/preact.js";

const MOST = 40; // sites that are drawn
const SIDE = 5; // height of a line of text, in the picture's units

let drawn = 0; // graphs, so that each has an arrow's head of its own

const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
const told = (link) => `${link.from} to ${link.to}: ${link.weight.toFixed(3)}`;

export function Flows({ table }) {
  const tip = useMemo(() => `tip${(drawn += 1)}`, []);
  const rows = Object.keys(table.rows || {});
  const columns = table.columns || [];
  const links = rows.flatMap((from) => columns.map((to, at) => ({ from, to, weight: table.rows[from][at] })).filter((link) => link.weight > 0 && link.from !== link.to));
  if (!links.length) return html`<p>No link has a weight above zero.</p>`;
  const senders = [...new Set(links.map((link) => link.from))];
  const receivers = [...new Set(links.map((link) => link.to))];
  if (senders.length > MOST || receivers.length > MOST) return html`<p class="quiet">${links.length} links; too many to draw.</p>`;
  const both = senders.some((name) => receivers.includes(name));
  const { height, at } = both ? ring([...new Set([...senders, ...receivers])]) : sides(senders, receivers);
  const most = Math.max(...links.map((link) => link.weight));
  const names = [...new Set([...senders, ...receivers])];
  return html`<figure><svg class="flows" viewBox=${`0 0 100 ${height}`} role="img" aria-label=${links.map(told).join("; ")}>
    <defs><marker id=${tip} viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="2.4" markerHeight="2.4" orient="auto" markerUnits="userSpaceOnUse"><path class="tip" d="M0 0L6 3L0 6z" /></marker></defs>
    ${links.map((link) => html`<path class="link" marker-end=${`url(#${tip})`} d=${curve(at.get(link.from), at.get(link.to), both)} stroke-width=${0.15 + (0.6 * link.weight) / most}><title>${told(link)}</title></path>`)}
    ${names.map((name) => html`<circle class="node" cx=${at.get(name).x} cy=${at.get(name).y} r="0.9" /><text class=${`name ${at.get(name).end ? "end" : ""}`} x=${at.get(name).x + (at.get(name).end ? -1.8 : 1.8)} y=${at.get(name).y + 0.7}>${short(name, 22)}</text>`)}
  </svg>
  <p class="quiet">From sender to receiver; thicker is heavier. Point at a line to read its weight.</p></figure>`;
}

// Senders left, receivers right.
function sides(senders, receivers) {
  const height = Math.max(senders.length, receivers.length) * SIDE + 2;
  const y = (list, index) => ((index + 0.5) * height) / list.length;
  const at = new Map();
  senders.forEach((name, index) => at.set(name, { x: 32, y: y(senders, index), end: true }));
  receivers.forEach((name, index) => at.set(name, { x: 68, y: y(receivers, index), end: false }));
  return { height, at };
}

// All in a circle, where one is both.
function ring(names) {
  const radius = Math.max(12, Math.min(24, names.length * 2));
  const height = 2 * radius + 2 * SIDE;
  const at = new Map(
    [...names].sort().map((name, index) => {
      const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
      return [name, { x: 50 + radius * Math.cos(angle), y: height / 2 + radius * Math.sin(angle), end: Math.cos(angle) < -0.01 }];
    }),
  );
  return { height, at };
}

function curve(from, to, bent) {
  if (!bent) return `M${from.x} ${from.y} C50 ${from.y} 50 ${to.y} ${to.x - 1} ${to.y}`;
  const across = { x: (from.x + to.x) / 2 + (to.y - from.y) * 0.15, y: (from.y + to.y) / 2 - (to.x - from.x) * 0.15 };
  const long = Math.hypot(to.x - across.x, to.y - across.y) || 1;
  const tip = { x: to.x - (1.2 * (to.x - across.x)) / long, y: to.y - (1.2 * (to.y - across.y)) / long };
  return `M${from.x} ${from.y} Q${across.x} ${across.y} ${tip.x} ${tip.y}`;
}

export function Groups({ groups }) {
  const listed = Object.entries(groups).sort(([, one], [, other]) => other.length - one.length);
  return html`<ul class="groups" aria-label="Groups of sites">${listed.map(([name, members]) => html`<li><strong>${name}</strong><span class="quiet"> ${members.length}</span>
    <span class="chips">${members.slice(0, MOST).map((member) => html`<a class="chip" href=${`#/sites/${encodeURIComponent(member)}`}>${member}</a>`)}${members.length > MOST && html`<span class="quiet">and ${members.length - MOST} more</span>`}</span></li>`)}</ul>`;
}
