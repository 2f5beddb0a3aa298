// Experiments: of a run that was, and as commands.

import { written, yaml } from "./yaml.js";

// What a run was started with, as far as its result has it.
export function experimentOf(run) {
  const made = { name: run.name, method: run.method, config: run.config, world: trimmed(run.world), roster: rosterOf(run), seed: run.seed };
  for (const name of ["sample", "augment", "computing", "wire"]) if (run[name]) made[name] = run[name];
  if (run.prior && run.prior !== "source") made.prior = run.prior;
  return made;
}

// A world without what it leaves to its defaults.
export const trimmed = (world) => Object.fromEntries(Object.entries(world).filter(([, value]) => value !== null && !(typeof value === "object" && Object.keys(value).length === 0)));

const rosterOf = (run) => Object.fromEntries(run.clients.map((client) => [client.name, client.role]));

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export const curl = (experiment) =>
  `curl -sS --fail-with-body -H "Authorization: Bearer $TIDELINE_API_KEY" \\\n  --json ${quoted(written(experiment))} \\\n  ${location.origin}/runs\n`;

export const python = (experiment) =>
  `import os\n\nimport tideline\n\nserver = tideline.connect("${location.origin}", os.environ["TIDELINE_API_KEY"])\nrun = server.start(${pythonic(experiment)})\nprint(run.wait())\n`;

export const shell = (experiment) => `export TIDELINE_URL=${location.origin}\ncat > experiment.yaml <<'END'\n${yaml(experiment)}END\ntideline run start experiment.yaml --watch\n`;

const WORDS = new Map([[true, "True"], [false, "False"], [null, "None"]]);

// A value as Python writes it. Strings are JSON's, which Python reads alike.
function pythonic(value, depth = 0) {
  if (WORDS.has(value)) return WORDS.get(value);
  if (typeof value !== "object") return written(value);
  const list = Array.isArray(value);
  const inner = list ? value.map((each) => pythonic(each, depth + 1)) : Object.entries(value).map(([name, each]) => `${written(name)}: ${pythonic(each, depth + 1)}`);
  const [opens, closes] = list ? "[]" : "{}";
  if (!inner.length || list) return `${opens}${inner.join(", ")}${closes}`;
  const pad = "    ".repeat(depth + 1);
  return `${opens}\n${inner.map((line) => `${pad}${line},\n`).join("")}${pad.slice(4)}${closes}`;
}
