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

// Where an open run stands, by the orders of its newest exchange: phase, round, how many sites were asked, and since when.
export function placeOf(orders) {
  if (!orders.length) return null;
  const { phase, round, cursor } = orders[0];
  return { phase, round, cursor, asked: new Set(orders.map((order) => order.client)).size, opened: Math.min(...orders.map((order) => order.created)) };
}

const ENDS = { failed: "failed", expired: "lost", cancelled: "given up" };

// The stages of each site in one exchange: as its replies tell them; else, where the site reports its work, by its notes.
// -> [{name, stages: [[stage, from, to]], end, word}]; seconds since the exchange opened.
export function strips(orders, events, now) {
  const opened = placeOf(orders)?.opened ?? 0;
  const noted = new Map();
  for (const event of events) {
    const { client, note, cursor } = event.data || {};
    if (event.kind === "note" && cursor === orders[0]?.cursor) noted.set(`${client} ${note}`, [...(noted.get(`${client} ${note}`) || []), event.at]);
  }
  const sites = new Map();
  for (const order of orders) {
    const site = sites.get(order.client) || { name: order.client, stages: [] };
    const end = order.answered ?? (order.status === "open" ? Math.max(now, order.created) : Math.max(order.beat, order.created));
    const within = (note) => (noted.get(`${order.client} ${note}`) || []).find((at) => at >= order.created && at <= end + 1);
    const found = order.stages ? toldOf(order, end) : notedOf(order.created, within("order_started"), within("trained"), end, order.status === "open");
    site.stages.push(...found.map(([stage, from, to]) => [stage, from - opened, to - opened]));
    if (ENDS[order.status]) site.stages.push(["missed", end - opened, end - opened]);
    sites.set(order.client, { ...site, end: end - opened, word: ENDS[order.status] || (order.status === "open" ? "no reply yet" : "") });
  }
  return [...sites.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}

// All four, as the site told them with its reply.
function toldOf({ created, stages }, end) {
  const at = [created, stages.fetching, stages.computing, stages.sending, end];
  return ["queued", "fetching", "computing", "sending"].map((stage, index) => [stage, at[index], at[index + 1]]).filter(([, from, to]) => to > from);
}

// What notes tell, which travel by themselves: they know no beginning of fetching, and one that came after the reply tells nothing.
function notedOf(created, noted, told, end, open) {
  const [began, computed] = [noted, told].map((at) => (at < end ? at : undefined));
  if (began === undefined) return computed === undefined ? [["asked", created, end]] : [["asked", created, computed], ["sending", computed, end]];
  const rest = computed === undefined ? [[open ? "computing" : "working", began, end]] : [["computing", began, computed], ["sending", computed, end]];
  return [["waiting", created, began], ...rest].filter(([, from, to]) => to > from);
}
