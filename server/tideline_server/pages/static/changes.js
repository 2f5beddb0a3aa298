// What the lists are made of: read once, then changed as the coordinator says.

import { useEffect, useRef, useState } from "./vendor/preact.js";
import { get, listed, serverDrift } from "./api.js";
import { follow } from "./live.js";

const PAGE = 500; // rows that are asked for at a time
const NEWEST = 100; // runs that are known although they are over
const FIRST = 4000; // milliseconds in which a stream greets, unless a proxy holds it back
const SILENT = 20000; // the same later on: the coordinator says something every 15 s
const PAUSE = 8000; // between two readings where nothing comes

async function every(path, more = "") {
  const rows = [];
  let after = "";
  for (;;) {
    const some = await get(`${path}?limit=${PAGE}${more}${after && `&after=${encodeURIComponent(after)}`}`);
    rows.push(...some);
    if (some.length < PAGE) return rows;
    after = some.at(-1).id || some.at(-1).name;
  }
}

// Those that are not over, and the newest: what changes is told. Of the others a page asks the coordinator.
async function readRuns() {
  const [open, newest] = await Promise.all([every("/runs", "&status=open"), listed(`/runs?newest=true&limit=${NEWEST}`)]);
  return { runs: new Map([...newest.rows, ...open].map((each) => [each.id, each])), total: newest.count };
}

// Asked for before anybody knows who is signed in, where somebody was: the lists come with the session, and not behind it.
let early = null;
export function begin() {
  early = { runs: readRuns(), sites: every("/clients") };
  Object.values(early).forEach((each) => each.catch(() => {})); // whoever takes them hears of it
}

// state: begins, live, held (a proxy holds events back: lists are read again and again), away or ended.
const EMPTY = { runs: null, total: 0, sites: null, warnings: [], state: "begins", version: "", drift: 0, since: 0, error: null };

// Runs by id, sites, warnings, and whether the line is up. `left` is called once the session is over.
export function useChanges(project, left) {
  const [shown, show] = useState(EMPTY);
  const kept = useRef(EMPTY);
  useEffect(() => {
    let due = 0;
    let over = false;
    const set = (more) => {
      kept.current = { ...kept.current, ...more };
      // Many changes at once are one drawing.
      if (!due) due = setTimeout(() => { due = 0; if (!over) show(kept.current); }, kept.current.runs ? 60 : 0);
    };
    const refused = (error) => (error.status === 401 ? left() : set({ error }));
    const sites = (asked = every("/clients")) => asked.then((found) => set({ sites: found, error: null }), refused);
    const runs = (asked = readRuns()) => asked.then((found) => set({ ...found, error: null }), refused);
    const heard = {
      hello: (data) => {
        set({ version: data.version, drift: data.now - Date.now() / 1000, since: data.now });
        runs();
        sites();
      },
      run: (line) => {
        const before = kept.current.runs;
        const fresh = before && !before.has(line.id) && line.created > kept.current.since; // else it is an old one that changed
        if (before) set({ runs: new Map(before).set(line.id, line), total: kept.current.total + (fresh ? 1 : 0) });
      },
      gone: ({ run }) => {
        if (!kept.current.runs) return;
        const others = new Map(kept.current.runs);
        others.delete(run);
        set({ runs: others, total: kept.current.total - 1 });
      },
      sites: () => sites(),
      warnings: (data) => set({ warnings: data.warnings }),
    };
    kept.current = EMPTY;
    show(EMPTY);
    const first = project ? null : early;
    early = null;
    runs(first?.runs); // shown at once; what changes before the greeting is in those that are read then
    sites(first?.sites);
    let last = Date.now();
    let patience = FIRST;
    let read = 0;
    const alive = () => {
      last = Date.now();
      patience = SILENT;
      if (kept.current.state === "held") set({ state: "live" });
    };
    const polling = setInterval(() => {
      if (Date.now() - last < patience || Date.now() - read < PAUSE) return;
      read = Date.now();
      set({ drift: serverDrift() });
      runs().then(() => kept.current.error || set({ state: "held" }));
      sites();
    }, 1000);
    const end = follow("/changes", {
      onEvent: (event) => heard[event.kind]?.(event.data),
      onAlive: alive,
      onState: (state, error) => {
        if (kept.current.state !== "held" || (error && error.kind)) set({ state });
        if (error && error.status === 401) left();
      },
    });
    return () => {
      over = true;
      clearTimeout(due);
      clearInterval(polling);
      end();
    };
  }, [project]);
  return shown;
}

// The coordinator's time in seconds, by this page's clock and how far that is off.
export function useNow(drift, every_ms = 5000) {
  const [now, tick] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now() / 1000), every_ms);
    return () => clearInterval(timer);
  }, []);
  return now + drift;
}
