// From chosen sites to a valid experiment: who takes part, what the data are, how it is learnt. The text follows each choice,
// until somebody writes in it; it is checked as it changes.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { change, get, may } from "../api.js";
import { Act, Code, ErrorBox, Status } from "../parts.js";
import { count } from "../words.js";
import { yaml } from "../yaml.js";
import { curl, experimentOf, python, shell, trimmed } from "../experiments.js";

const CHOOSES = "rehearse"; // a rehearsal chooses the method
const KINDS = {
  images: { word: "Images", world: { inputs: [3, 28, 28], classes: 10, model: "lenet" }, hint: "channels, height and width, with spaces between" },
  features: { word: "Features or tables", world: { inputs: [1280], classes: 7, model: "linear" }, hint: "how many numbers a row has" },
};

export function Start({ changes, asked }) {
  const from = asked.get("from");
  const [text, setText] = useState("");
  const [own, setOwn] = useState(!!from); // whether somebody wrote in it
  const [error, setError] = useState(null);
  const write = (words) => { setText(words); setOwn(true); };
  useEffect(() => {
    if (from) get(`/runs/${encodeURIComponent(from)}`).then((run) => setText(yaml({ ...experimentOf(run), name: `${run.name} again` })), setError);
  }, [from]);
  if (!may("operator")) return html`<h1>Start a run</h1><p>Your key is a viewer's. Ask an admin for one whose role is operator.</p>`;
  return html`<h1>Start a run</h1>
    <${ErrorBox} error=${error} />
    ${from ? html`<p class="quiet">What <a href=${`#/runs/${encodeURIComponent(from)}`}>${from}</a> was started with. <a href="#/start">Begin with choices instead</a></p>`
      : html`<${Choices} sites=${changes.sites || []} runs=${changes.runs} only=${(asked.get("sites") || "").split(",").filter(Boolean)} own=${own} made=${(experiment) => setText(experiment ? yaml(experiment) : "")} />`}
    ${own && !from && html`<p class="warn">You have written in the text, so choices do not change it any more. <button class="small" onClick=${() => setOwn(false)}>Write it anew from the choices</button></p>`}
    ${text && html`<${Written} text=${text} setText=${write} />`}`;
}

const usual = (site, only) => (only.length && !only.includes(site.name) ? "" : site.roles.includes("source") ? "source" : site.roles[0]);

function Choices({ sites, runs, only, own, made }) {
  const present = sites.filter((site) => site.standing === "approved");
  const [roles, setRoles] = useState({});
  const [kind, setKind] = useState("images");
  const [world, setWorld] = useState(KINDS.images.world);
  const [method, setMethod] = useState(CHOOSES);
  const [rounds, setRounds] = useState(20);
  const [methods, setMethods] = useState([]);
  useEffect(() => {
    get("/algorithms").then(setMethods, () => {});
  }, []);
  useEffect(() => {
    setRoles((before) => Object.fromEntries(present.map((site) => [site.name, before[site.name] ?? usual(site, only)])));
  }, [present.map((site) => site.name).join(" ")]);
  useLastWorld(runs, (found) => { setWorld(found); setKind(found.inputs.length > 1 ? "images" : "features"); });
  const roster = Object.fromEntries(Object.entries(roles).filter(([, role]) => role));
  const targets = Object.values(roster).filter((role) => role === "target").length;
  const sources = Object.values(roster).filter((role) => role === "source").length;
  const lacks = !Object.keys(roster).length ? "Choose at least one site." : method === CHOOSES && (!targets || sources < 2) ? "A rehearsal needs two sites with labels (source) and one without (target)." : "";
  const wanted = JSON.stringify(lacks ? null : experiment({ method, rounds, world, roster }));
  useEffect(() => {
    if (!own) made(JSON.parse(wanted));
  }, [wanted, own]);
  return html`<form class="wizard" onSubmit=${(e) => e.preventDefault()}>
    <fieldset><legend>1. Who takes part?</legend>
      ${present.length === 0 && html`<p>No site is approved yet. <a href="#/sites?invite">Invite one</a>.</p>`}
      ${present.map((site) => html`<div class="pick" key=${site.name}><span class="who">${site.name}</span>
        ${["source", "target", "peer"].filter((role) => site.roles.includes(role)).map((role) => html`<label><input type="radio" name=${`role ${site.name}`} checked=${roles[site.name] === role} onChange=${() => setRoles({ ...roles, [site.name]: role })} /> ${role}</label>`)}
        <label><input type="radio" name=${`role ${site.name}`} checked=${!roles[site.name]} onChange=${() => setRoles({ ...roles, [site.name]: "" })} /> not this time</label>
      </div>`)}
      <p class="quiet">A source has labels, a target has none that training may use. Its owner says what a site may be.</p>
    </fieldset>
    <fieldset><legend>2. What are the data?</legend>
      ${Object.entries(KINDS).map(([name, { word, world: usual }]) => html`<label><input type="radio" name="kind" checked=${kind === name} onChange=${() => { setKind(name); setWorld(usual); }} /> ${word}</label>`)}
      <span class="row"><label>Shape of a row <input value=${world.inputs.join(" ")} aria-describedby="shape" pattern="[0-9]+( +[0-9]+)*" onInput=${(e) => setWorld({ ...world, inputs: e.target.value.trim().split(/\s+/).map(Number).filter((n) => n > 0) })} /></label>
      <label>Classes <input type="number" min="2" value=${world.classes} onInput=${(e) => setWorld({ ...world, classes: Number(e.target.value) })} /></label>
      <label>Network <input value=${world.model} onInput=${(e) => setWorld({ ...world, model: e.target.value.trim() })} /></label></span>
      <p class="quiet" id="shape">Shape: ${KINDS[kind].hint}.</p>
    </fieldset>
    <fieldset><legend>3. How should it be learnt?</legend>
      <label class="wide"><input type="radio" name="method" checked=${method === CHOOSES} onChange=${() => setMethod(CHOOSES)} /> Let a rehearsal choose: it tries adaptations where labels are, and says what to expect</label>
      <label class="wide"><input type="radio" name="method" checked=${method !== CHOOSES} onChange=${() => setMethod("fedavg")} /> One method</label>
      ${method !== CHOOSES && html`<label>Method <select value=${method} onChange=${(e) => setMethod(e.target.value)}>${methods.map((each) => html`<option value=${each.name}>${each.name}: ${each.summary}</option>`)}</select></label>`}
      <label>Rounds <input type="number" min="1" value=${rounds} onInput=${(e) => setRounds(Number(e.target.value))} /></label>
    </fieldset>
    <p aria-live="polite">${lacks ? html`<span class="cause">${lacks}</span>` : `${count(sources, "source")}, ${count(targets, "target")}. The experiment below follows your choices.`}</p>
  </form>`;
}

// The newest run's world is most likely this one's, too.
function useLastWorld(runs, found) {
  const done = useRef(false);
  useEffect(() => {
    if (done.current || !runs || !runs.size) return;
    done.current = true;
    const newest = [...runs.values()].sort((one, other) => other.created - one.created)[0];
    get(`/runs/${encodeURIComponent(newest.id)}`).then((run) => found(trimmed(run.world)), () => {});
  }, [runs]);
}

function experiment({ method, rounds, world, roster }) {
  if (method !== CHOOSES) return { name: `${method}, ${rounds} rounds`, method, config: { rounds }, world, roster, seed: 0 };
  return { name: `rehearsal, ${rounds} rounds`, config: { rounds }, world, roster, rehearse: { on: "all" }, then: "run", seed: 0 };
}

const PAUSE = 400; // milliseconds without a key before the text is checked

function Written({ text, setText }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState(null);
  const [checking, setChecking] = useState(true);
  useEffect(() => {
    let over = false;
    setChecking(true);
    const timer = setTimeout(async () => {
      try {
        const said = await change("POST", "/runs/check", { text });
        if (!over) { setFound(said); setProblem(null); }
      } catch (error) {
        if (!over) setProblem(error);
      }
      if (!over) setChecking(false);
    }, PAUSE);
    return () => { over = true; clearTimeout(timer); };
  }, [text]);
  const start = () => change("POST", "/runs", found.experiment).then((made) => { location.hash = `#/runs/${made.run}`; });
  return html`<section>
    <h2>The experiment</h2>
    <textarea class="code" spellcheck="false" aria-label="The experiment, as YAML" rows=${Math.min(40, text.split("\n").length + 1)} value=${text} onInput=${(e) => setText(e.target.value)}></textarea>
    <div aria-live="polite">
      ${problem ? html`<${ErrorBox} error=${problem} />` : found && html`<p><${Status} of="valid" /> <span class="quiet">${checking ? "checking …" : `${count(found.runs, "run")}, ${count(found.exchanges, "exchange")}, sites ${found.sites.join(", ")}.`}</span></p>`}
      ${!problem && found && found.notes.map((note) => html`<p class="warn">${note}</p>`)}
    </div>
    <${Act} label="Start the run" kind="main" disabled=${!!problem || checking || !found} act=${start} />
    ${found && !problem && html`<details class="same"><summary>The same from a shell or from Python</summary>
      <p class="quiet">With a key in <code>TIDELINE_API_KEY</code>.</p>
      <h3>Command line</h3><${Code} text=${shell(found.experiment)} label="Command line" />
      <h3>curl</h3><${Code} text=${curl(found.experiment)} label="curl" />
      <h3>Python</h3><${Code} text=${python(found.experiment)} label="Python" />
    </details>`}
  </section>`;
}
