// What waits for the owner, what is at work, results, the policy and the decisions that stand.

import { html, useEffect, useState } from "./vendor/preact.js";
import { get } from "./calls.js";
import { Act, Bar, ErrorBox, Table } from "./parts.js";
import { bytes, count, moment } from "./words.js";

export function useLoaded(path, turn) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let over = false;
    get(path).then((one) => !over && (setFound(one), setError(null)), (one) => !over && setError(one));
    return () => {
      over = true;
    };
  }, [path, turn]);
  return [found, error];
}

export function Waiting({ now, act }) {
  return html`<h2 id="waiting-title">Waiting for you</h2>
    ${now.waiting.length === 0 && html`<p>Nothing waits for your word.</p>`}
    ${now.waiting.map((each) => html`<${Ask} key=${each.run} each=${each} act=${act} />`)}`;
}

function Ask({ each, act }) {
  const say = (answer) => () => act("say", { run: each.run, shown: each.shown, answer });
  return html`<article class="ask">
    <h3>Run <bdi>${each.run}</bdi></h3>
    <p class="quiet">waits since ${moment(each.since)}</p>
    <ul>${each.work.map((line) => html`<li>${line}</li>`)}</ul>
    <p class="leaves">What would leave this site:</p>
    <ul>${each.leaves.map((line) => html`<li>${line}</li>`)}</ul>
    <details><summary>Word for word, field by field</summary><ul>${each.words.map((line) => html`<li>${line}</li>`)}</ul></details>
    <div class="row">
      <${Act} label="Approve once" kind="main" act=${say("once")} />
      <${Act} label="Always for these settings" act=${say("always")} ask="Let this run work, and from now on every run of this user with this method, these settings and this contract? You can take it back under Policy." />
      <${Act} label="Decline" act=${say("decline")} />
      <${Act} label="Never this method" kind="danger" act=${say("never")} ask=${`Decline this run, and refuse every run of the method ${each.method} from now on, also those under way? You can take it back under Policy.`} />
    </div>
  </article>`;
}

const Share = ({ of }) => html`<${Bar} share=${of} /> ${Math.round(100 * of)} %`;
const WHY = { hours: "for an hour at which your policy lets runs work", quota: "for tomorrow: your quota of today is used up", paused: "until you go on" };

export function Now({ now, act }) {
  return html`<h2 id="now-title">Now</h2>
    ${now.paused > 0 && html`<p class="paused" role="status"><strong>Paused</strong> since ${moment(now.paused)}. Nothing new begins here, also after a restart. What was under way is finished.</p>`}
    ${now.works.length === 0 ? html`<p>Nothing is at work.</p>` : html`<ul>${now.works.map((each) => html`<li key=${each.run + each.step}>Run <bdi>${each.run}</bdi>: ${each.phase}/${each.step}, round ${each.round}, since ${moment(each.since)}, <${Share} of=${each.progress} /> done</li>`)}</ul>`}
    ${now.next.length > 0 && html`<h3>Comes next</h3><ul>${now.next.map((each) => html`<li key=${each.run}>Run <bdi>${each.run}</bdi> (${each.method}) waits ${WHY[each.why] || each.why}</li>`)}</ul>`}
    <${Machine} />
    <p>${now.paused > 0 ? html`<${Act} key="on" label="Go on" kind="main" act=${() => act("pause", { on: false })} />` : html`<${Act} key="pause" label="Pause now" act=${() => act("pause", { on: true })} />`}</p>`;
}

const LOOKS = 3000; // milliseconds between two looks at the machine, while the page is seen

// What the agent computes on, and how busy this machine is.
function Machine() {
  const [use, setUse] = useState(null);
  useEffect(() => {
    let timer = 0;
    let over = false;
    const look = async () => {
      if (!document.hidden) await get("machine").then((found) => over || setUse(found), () => {});
      if (!over) timer = setTimeout(look, LOOKS);
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);
  if (!use) return html`<p class="quiet">Looking at the machine …</p>`;
  return html`<h3>This machine</h3>
    <dl class="machine">
      <dt>Computes on</dt><dd>${use.device}</dd>
      <dt>Processors</dt><dd>${use.cpu === null ? html`<span class="quiet">not known</span>` : html`<${Share} of=${use.cpu} /> busy`}</dd>
      ${use.gpus.map((gpu, at) => html`<dt>GPU ${at}</dt><dd>${gpu.name}: ${gpu.use === null ? "its driver does not say how busy it is" : html`<${Share} of=${gpu.use} /> busy`}${gpu.total === null || gpu.used === null ? "" : `, ${bytes(gpu.used)} of ${bytes(gpu.total)} of its memory taken`}</dd>`)}
      ${use.gpus.length === 0 && html`<dt>GPU</dt><dd class="quiet">none, or no driver's nvidia-smi</dd>`}
    </dl>
    <p class="quiet">All programs of the machine together.</p>`;
}

export function Results({ now }) {
  const [found, error] = useLoaded("results", now.sent);
  const metrics = (row) => Object.entries(row.metrics).map(([name, value]) => `${name} ${Number(value).toPrecision(4)}`).join(", ");
  const columns = [
    { head: "Run", cell: (row) => row.run, by: (row) => row.run },
    { head: "Method", cell: (row) => row.method },
    { head: "Role", cell: (row) => row.role },
    { head: "Your own metrics, as last reported", cell: (row) => row.error || metrics(row) },
    { head: "Your model", cell: (row) => html`<${Model} run=${row.run} />` },
  ];
  return html`<h2 id="results-title">Results</h2>
    <${ErrorBox} error=${error} />
    ${found && (found.length ? html`<${Table} label="Runs at this site" cards=${true} columns=${columns} rows=${found} name=${(row) => row.run} />` : html`<p>No run has worked here yet.</p>`)}`;
}

function Model({ run }) {
  const take = async () => {
    const answer = await fetch(`/api/model?run=${encodeURIComponent(run)}`);
    if (!answer.ok) throw Object.assign(new Error(), await answer.json().then((body) => ({ message: body.detail, todo: body.todo })));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = "model.safetensors";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<${Act} label="Download" kind="small" act=${take} />`;
}

const up = (epsilon) => (epsilon === null ? "unbounded" : epsilon ? (epsilon + 0.0005).toFixed(3) : "0");
const left = (row) => (row.lost ? "unknown" : row.left === null ? "" : Math.max(row.left - 0.0005, 0).toFixed(3));

export function Budget({ now }) {
  const [found, error] = useLoaded("budget", now.sent);
  const columns = [
    { head: "Population", cell: (row) => row.population },
    { head: "Of each", cell: (row) => row.unit },
    { head: "Spent", cell: (row) => up(row.spent) },
    { head: "Reserved", cell: (row) => up(row.reserved) },
    { head: "Left", cell: left },
    { head: "Of epsilon", cell: (row) => (row.epsilon === null ? "no limit" : String(row.epsilon)) },
    { head: "At delta", cell: (row) => String(row.delta) },
  ];
  return html`<h2 id="budget-title">Privacy budget</h2>
    <${ErrorBox} error=${error} />
    ${found && (found.rows.length ? html`<${Table} label="Budgets of epsilon" columns=${columns} rows=${found.rows} name=${(row) => row.population + row.epsilon} />` : html`<p>No budget is set, and nothing was charged. Your policy's section [privacy] sets one.</p>`)}
    ${found && found.behind && html`<p class="error" role="alert">The ledger lacks entries that the coordinator was told of: no private run works here. Restore the newest home.</p>`}
    ${found && found.rows.some((row) => row.lost) && html`<p class="error" role="alert">Entries of the ledger are gone: no private run works here until you say what was spent (tideline site spent).</p>`}
    ${found && found.uncharged > 0 && html`<p class="quiet">Runs that began here and were charged to no budget: ${found.uncharged}</p>`}`;
}

export function Policy() {
  const [found, error] = useLoaded("policy", 0);
  return html`<h2 id="policy-title">Policy</h2>
    <${ErrorBox} error=${error} />
    ${found && html`<div class="words">
      <p>${found.words ? `In force: ${found.words}.` : ""} ${found.file ? html`Its file: <code>${found.file}</code>` : "You gave the agent no policy file (--policy)."}</p>
      ${found.error && html`<p class="error" role="alert">${found.error}</p>`}
      <ul>${found.lines.map((line) => html`<li>${line}</li>`)}</ul>
    </div>`}`;
}

export function Decisions({ now, act }) {
  return html`<h3>Decisions that stand</h3>
    ${now.standing.length === 0 && html`<p>You have decided each run by itself.</p>`}
    <ul>${now.standing.map((each) => html`<li key=${each.number}><strong>${each.answer === "always" ? "Always" : "Never"}</strong> ${each.method}${each.answer === "always" ? html`, for <bdi>${each.by}</bdi>, ${each.words}` : ", whatever the settings"} <span class="quiet">since ${moment(each.at)}</span> <${Act} label="Take back" kind="small" act=${() => act("end", { number: each.number })} /></li>`)}</ul>`;
}
