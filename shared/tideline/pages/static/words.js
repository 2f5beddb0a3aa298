// Numbers and states in words.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return "under 1 s";
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 100 * MINUTE) return `${Math.round(seconds / MINUTE)} min`;
  if (seconds < 48 * HOUR) return `${Math.round(seconds / HOUR)} h`;
  return `${Math.round(seconds / DAY)} days`;
}

export const ago = (at, now) => (now - at < 2 ? "now" : `${span(Math.max(0, now - at))} ago`);

export function moment(at) {
  return new Date(at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

export function bytes(n) {
  if (!n) return "0 B";
  const unit = Math.min(4, Math.floor(Math.log10(n) / 3));
  const value = n / 1000 ** unit;
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);

export const points = (share) => (share === null || share === undefined ? "–" : `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)}`);

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString()} ${n === 1 ? one : many}`;

// Some names, then how many more.
export function names(list, most = 3) {
  if (list.length <= most) return list.length > 1 ? `${list.slice(0, -1).join(", ")} and ${list.at(-1)}` : list.join("");
  return `${list.slice(0, most).join(", ")} and ${list.length - most} more`;
}

export const OPEN = new Set(["waiting", "running", "stalled"]);

const HELD = { approval: "its owner has to approve", hours: "outside of its hours", quota: "its owner's quota is used up", paused: "its owner has paused it" };

// One sentence on how a run stands. `place`: the phase and round that are open, if they are known.
export function standing(run, place, now) {
  const last = run.phases.at(-1);
  switch (run.status) {
    case "completed":
      return `Completed ${run.rounds ? `after ${count(run.rounds, "round")}` : ""} in ${span(run.seconds)}.`;
    case "failed":
      return `Failed${last ? ` after ${last.name}, round ${last.round}` : ""}: ${run.cause || "no reason was given"}.`;
    case "cancelled":
      return `Cancelled${run.cause ? `: ${run.cause}` : ""}.`;
    case "stalled":
      return `Stalled: ${run.cause}. It goes on where it stopped once you resume it.`;
    default:
      return waiting(run, place);
  }
}

function waiting(run, place) {
  const awaited = run.awaited || [];
  const asked = place ? place.asked : awaited.length;
  const here = run.cursor < 0 ? "Gathering the sites" : place && place.phase ? roundOf(run, place) : `Exchange ${run.cursor + 1} of ${run.plan_length}`;
  if (!awaited.length) return `${here}: every site has answered; ${run.waits_for || "the round is being closed"}.`;
  const silent = Math.max(...awaited.map((each) => each.silent_seconds ?? 0));
  const held = awaited.filter((each) => each.held);
  const who = names(awaited.map((each) => each.client));
  const counted = asked >= awaited.length ? `${asked - awaited.length} of ${asked} sites answered, ` : "";
  const why = held.length ? ` (${held[0].client}: ${HELD[held[0].held] || held[0].held})` : "";
  const since = silent > 45 ? `; silent for ${span(silent)}` : "";
  return `${here}: ${counted}waiting for ${who}${why}${since}.`;
}

const roundOf = (run, place) =>
  run.rounds && place.round <= run.rounds ? `Round ${place.round} of ${run.rounds} (${place.phase})` : `${place.phase}, round ${place.round}`;

// How far a run is, in 0..1.
export const progress = (line) => (line.status === "completed" ? 1 : Math.max(0, line.cursor) / Math.max(1, line.of));
