// A run's curves: what is known of each site, round by round. Arithmetic only.

// The phase that scores most often, as lines by site over its rounds. Null where nothing was scored.
export function curves(run) {
  const byPhase = Map.groupBy ? Map.groupBy(run.curve, (point) => point.phase) : grouped(run.curve);
  const points = [...byPhase.values()].sort((one, other) => other.length - one.length)[0];
  if (!points) return null;
  const cursors = [...new Set(points.map((point) => point.cursor))].sort((one, other) => one - other);
  const rounds = new Map(points.map((point) => [point.cursor, point.round]));
  const at = new Map(cursors.map((cursor, index) => [cursor, index]));
  const roles = new Map(run.clients.map((client) => [client.name, client.role]));
  const lines = new Map();
  for (const point of points) {
    const name = point.client ?? "all sites, mean";
    if (!lines.has(name)) lines.set(name, { name, role: roles.get(name) || "", values: new Array(cursors.length).fill(null) });
    lines.get(name).values[at.get(point.cursor)] = point.accuracy;
  }
  const sorted = [...lines.values()].sort((one, other) => (one.role === "target") - (other.role === "target") || (one.name < other.name ? -1 : 1));
  return { phase: points[0].phase, rounds: cursors.map((each) => rounds.get(each)), bytes: traffic(run, cursors), lines: sorted };
}

function grouped(points) {
  const made = new Map();
  for (const point of points) made.set(point.phase, [...(made.get(point.phase) || []), point]);
  return made;
}

// Megabytes of all sites, both ways, up to and with each of these places of the plan. The first closed round is the join, at -1.
function traffic(run, cursors) {
  let sum = 0;
  const until = run.phases.map((phase) => (sum += phase.bytes_down + phase.bytes_up));
  return cursors.map((cursor) => (until[Math.min(cursor + 1, until.length - 1)] ?? 0) / 1e6);
}

// The mean of some lines where each of them has a value.
export function mean(lines) {
  const length = lines[0]?.values.length ?? 0;
  return Array.from({ length }, (_, at) => {
    const values = lines.map((line) => line.values[at]).filter((value) => value !== null);
    return values.length === lines.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  });
}

// What the newest events say of the open exchange: its phase and round, how many were asked, and when it opened. sites: of the run.
export function placeOf(events, sites) {
  const closed = events.findLastIndex((event) => event.kind === "closed" || event.kind === "created");
  if (closed < 0) return null;
  const since = events.slice(closed + 1);
  const seen = since.find((event) => event.data && event.data.phase && event.data.cursor === cursorAfter(events[closed]));
  const opened = events[closed].at;
  const joins = events[closed].kind === "created";
  const asked = joins ? sites : (events[closed].data.asked ?? 0);
  return { phase: joins ? "join" : seen ? seen.data.phase : "", round: seen ? seen.data.round : 0, asked, opened, events: since };
}

const cursorAfter = (event) => (event.kind === "created" ? -1 : event.data.cursor);

// The stages of each site in one exchange, from its notes: queued until it began to work, computing, then sending.
export function strips(opened, events, now) {
  const sites = new Map();
  for (const event of events) {
    const { client, note } = event.data || {};
    if (!client) continue;
    const site = sites.get(client) || { name: client };
    if (note === "order_started") site.began = event.at;
    if (note === "trained") site.computed = event.at;
    if (event.kind === "answered") site.answered = event.at;
    sites.set(client, site);
  }
  return [...sites.values()]
    .map((site) => {
      const end = site.answered ?? now;
      const began = site.began ?? end;
      const computed = site.computed ?? end;
      const stages = [["queued", opened, began], ["computing", began, computed], ["sending", computed, end]];
      return { name: site.name, stages: stages.map(([stage, from, to]) => [stage, from - opened, Math.max(from, to) - opened]).filter(([, from, to]) => to > from) };
    })
    .sort((one, other) => (one.name < other.name ? -1 : 1));
}
