// Experiments: of a run that was, and as commands.

import { yaml } from "./yaml.js";

// What a run was started with, as far as its result has it.
export function experimentOf(run) {
  const made = { name: run.name, method: run.method, config: run.config, world: trimmed(run.world), roster: rosterOf(run), seed: run.seed };
  for (const name of ["sample", "augment", "computing", "wire"]) if (run[name]) made[name] = run[name];
  if (run.prior && run.prior !== "source") made.prior = run.prior;
  return made;
}

const trimmed = (world) => Object.fromEntries(Object.entries(world).filter(([, value]) => value !== null && !(typeof value === "object" && Object.keys(value).length === 0)));

const rosterOf = (run) => Object.fromEntries(run.clients.map((client) => [client.name, client.role]));

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export const curl = (experiment) =>
  `curl -sS --fail-with-body -H "Authorization: Bearer $TIDELINE_API_KEY" \\\n  --json ${quoted(JSON.stringify(experiment))} \\\n  ${location.origin}/runs\n`;

export const python = (experiment) =>
  `from tideline.python import connect\n\ncoordinator = connect("${location.origin}")\nrun = coordinator.start(${pythonic(experiment)})\nprint(run.wait())\n`;

export const shell = (experiment) => `cat > experiment.yaml <<'END'\n${yaml(experiment)}END\ntideline run start experiment.yaml --watch\n`;

const pythonic = (value) => JSON.stringify(value, null, 4).replace(/\btrue\b/g, "True").replace(/\bfalse\b/g, "False").replace(/\bnull\b/g, "None");
