// Charts with their numbers as tables. Colours differ in lightness, too (Okabe and Ito), and lines in their dashes.

import { html, useEffect, useRef } from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";

const looks = document.createElement("link");
looks.rel = "stylesheet";
looks.href = "/pages/vendor/uplot.css";
document.head.append(looks);

const LIGHT = ["#0072b2", "#c14b00", "#00785a", "#a63d7f", "#8a6d00", "#3b8fc2", "#444444"];
const DARK = ["#5db7f0", "#ff9a57", "#3fd0a4", "#e79ac4", "#e6c25a", "#9fd3f5", "#dddddd"];
const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4]];
const LEAST_SPAN = 0.2; // of an axis of shares: a curve that hardly moves looks so

const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000]; // steps of an axis that counts

const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
export const colour = (at) => (dark() ? DARK : LIGHT)[at % LIGHT.length];
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function range(share, band) {
  return (_, least, most) => {
    if (least === null) return [0, 1];
    const low = band ? Math.min(least, band.low) : least;
    const high = band ? Math.max(most, band.high) : most;
    if (!share) return [Math.min(0, low), high === low ? high + 1 : high + (high - low) * 0.05];
    const middle = (low + high) / 2;
    const half = Math.max(LEAST_SPAN, (high - low) * 1.15) / 2;
    const from = Math.max(0, Math.min(middle - half, 1 - 2 * half));
    return [from, Math.min(1, from + 2 * half)];
  };
}

function drawBand(drawn, { value, low, high }) {
  const { ctx, bbox } = drawn;
  const y = (at) => drawn.valToPos(Math.min(Math.max(at, 0), 1), "y", true);
  ctx.save();
  ctx.fillStyle = ctx.strokeStyle = ink("--soft");
  ctx.globalAlpha = 0.18;
  ctx.fillRect(bbox.left, y(high), bbox.width, y(low) - y(high));
  ctx.globalAlpha = 1;
  ctx.setLineDash([8, 6]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y(value));
  ctx.lineTo(bbox.left + bbox.width, y(value));
  ctx.stroke();
  ctx.restore();
}

// lines: {name, values, wide, dash, colour}; x: numbers, ascending. A value of null is a gap.
// band: {value, low, high, words}: what was expected, across the whole width.
export function Lines({ title, x, lines, xLabel, share = false, unit = "", height = 260, n, band = null }) {
  const place = useRef(null);
  useEffect(() => {
    const room = place.current; // the observer may speak once more after the chart has left the page
    const whole = x.every(Number.isInteger);
    const axis = { stroke: ink("--ink"), grid: { stroke: ink("--rule"), width: 1 }, ticks: { stroke: ink("--rule") } };
    const show = (value) => (value === null || value === undefined ? "–" : share ? `${(100 * value).toFixed(1)} %` : `${+value.toPrecision(4)} ${unit}`);
    const made = new uPlot(
      {
        width: Math.max(260, room.clientWidth),
        height,
        scales: { x: { time: false }, y: { range: range(share, band) } },
        hooks: band ? { drawAxes: [(drawn) => drawBand(drawn, band)] } : {},
        axes: [
          { ...axis, label: xLabel, labelSize: 24, ...(whole ? { incrs: WHOLE } : {}) },
          { ...axis, size: 58, values: (_, ticks) => ticks.map((each) => (share ? `${Math.round(100 * each)} %` : `${+each.toPrecision(3)}`)) },
        ],
        series: [
          { label: xLabel },
          ...lines.map((line, at) => ({
            label: line.name,
            stroke: line.colour || colour(at),
            width: line.wide ? 3 : 1.6,
            dash: line.dash ? DASHES[1] : DASHES[Math.floor(at / LIGHT.length) % DASHES.length],
            points: { show: x.length < 30, size: line.wide ? 7 : 5 },
            spanGaps: true,
            value: (_, value) => show(value),
          })),
        ],
        legend: { live: true },
      },
      [x, ...lines.map((line) => line.values)],
      room,
    );
    const fit = new ResizeObserver(() => made.setSize({ width: Math.max(260, room.clientWidth), height }));
    fit.observe(room);
    return () => {
      fit.disconnect();
      made.destroy();
    };
  }, [x, lines, height, share, band]);
  const last = lines.map((line) => `${line.name} ${share ? `${(100 * (line.values.findLast((v) => v !== null) ?? 0)).toFixed(1)} %` : line.values.at(-1)}`);
  return html`<figure>
    <figcaption>${title}${n ? html` <span class="quiet">${n}</span>` : ""}</figcaption>
    <div ref=${place} class="chart" role="img" aria-label=${`${title}: ${last.slice(0, 8).join(", ")} at the end${band ? `; ${band.words}` : ""}`}></div>
    ${band && html`<p class="keys"><span class="key band">${band.words}</span></p>`}
    <${Numbers} heads=${[xLabel, ...lines.map((line) => line.name)]} rows=${x.map((at, index) => [at, ...lines.map((line) => line.values[index])])} share=${share} />
  </figure>`;
}

const MOST_ROWS = 500;

function Numbers({ heads, rows, share }) {
  const shown = rows.length > MOST_ROWS ? rows.slice(-MOST_ROWS) : rows;
  const cell = (value, at) => (value === null || value === undefined ? "–" : at && share ? (100 * value).toFixed(1) : +(+value).toPrecision(5));
  return html`<details class="numbers">
    <summary>The numbers${share ? ", in percent" : ""}</summary>
    ${shown.length < rows.length && html`<p class="quiet">The last ${MOST_ROWS} of ${rows.length} rows.</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Numbers of the chart">
      <table>
        <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
        <tbody>${shown.map((row) => html`<tr>${row.map((value, at) => html`<td class="right">${cell(value, at)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
  </details>`;
}

// Intervals on one scale: a dot with its whiskers, and what it is compared with. rows: {name, value, low, high, other, mark}
export function Intervals({ title, rows, note }) {
  const ROW = 30;
  const at = (share) => 34 + share * 60;
  return html`<figure>
    <figcaption>${title}</figcaption>
    <svg class="intervals" viewBox=${`0 0 100 ${(rows.length * ROW + 22) / 6}`} role="img" aria-label=${rows.map((row) => `${row.name} ${(100 * row.value).toFixed(1)} %`).join(", ")}>
      ${[0, 0.25, 0.5, 0.75, 1].map((share) => html`<line x1=${at(share)} x2=${at(share)} y1="0" y2=${(rows.length * ROW) / 6} class="rule" /><text x=${at(share)} y=${(rows.length * ROW + 14) / 6} class="tick">${100 * share} %</text>`)}
      ${rows.map((row, index) => {
        const y = (index * ROW + ROW / 2) / 6;
        return html`<text x="0" y=${y + 0.8} class="name">${row.mark ? "◆ " : ""}${row.name.length > 22 ? `${row.name.slice(0, 21)}…` : row.name}</text>
          ${row.low !== undefined && html`<line x1=${at(row.low)} x2=${at(row.high)} y1=${y} y2=${y} class="whisker" />`}
          ${row.other !== null && row.other !== undefined && html`<line x1=${at(row.other)} x2=${at(row.other)} y1=${y - 1.4} y2=${y + 1.4} class="other" />`}
          <circle cx=${at(row.value)} cy=${y} r="1.1" class="dot" />`;
      })}
    </svg>
    ${note && html`<p class="quiet">${note}</p>`}
  </figure>`;
}

const STAGES = {
  queued: "queued",
  fetching: "fetching what it reads",
  waiting: "queued or fetching: known apart once a reply tells it",
  computing: "computing",
  sending: "sending its reply",
  working: "computing or sending: its site does not say which",
  asked: "asked; the site tells no stages",
  missed: "no reply",
};

// A strip per site of one exchange. strips: {name, end, word, stages: [[stage, from, to]]}; seconds since the exchange opened.
export function Strips({ title, strips, seconds }) {
  const ROW = 22;
  const x = (at) => 28 + (Math.min(Math.max(at, 0), seconds) / Math.max(seconds, 0.001)) * 54;
  const words = (strip) => strip.stages.map(([stage, from, to]) => (stage === "missed" ? strip.word : `${stage} ${(to - from).toFixed(1)} s`)).join(", ");
  const used = new Set(strips.flatMap((strip) => strip.stages.map(([stage]) => stage)));
  return html`<figure>
    <figcaption>${title}</figcaption>
    <svg class="strips" viewBox=${`0 0 100 ${(strips.length * ROW + 16) / 6}`} role="img" aria-label=${strips.map((strip) => `${strip.name}: ${words(strip)}`).join("; ")}>
      ${strips.map((strip, index) => {
        const y = (index * ROW) / 6;
        return html`<text x="0" y=${y + 2.4} class="name">${strip.name.length > 18 ? `${strip.name.slice(0, 17)}…` : strip.name}</text>
          ${strip.stages.map(([stage, from, to]) => html`<rect class=${`stage ${stage}`} x=${x(from)} y=${y + 0.6} width=${Math.max(stage === "missed" ? 0.8 : 0.4, x(to) - x(from))} height="2.4"><title>${stage === "missed" ? strip.word : `${STAGES[stage]}: ${(to - from).toFixed(1)} s`}</title></rect>`)}
          <text class="tick after" x=${x(strip.end) + 1} y=${y + 2.3}>${strip.word || `${strip.end.toFixed(1)} s`}</text>`;
      })}
      <text x="28" y=${(strips.length * ROW + 12) / 6} class="tick">0</text>
      <text x="82" y=${(strips.length * ROW + 12) / 6} class="tick">${seconds.toFixed(1)} s</text>
    </svg>
    <p class="keys">${Object.keys(STAGES).filter((stage) => used.has(stage)).map((stage) => html`<span class=${`key ${stage}`}>${STAGES[stage]}</span> `)}</p>
  </figure>`;
}
