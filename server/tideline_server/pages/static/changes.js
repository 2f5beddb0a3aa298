// What the lists are made of: read once, then changed as the coordinator says.

import { useEffect, useRef, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { follow } from "./live.js";

const PAGE = 500; // rows that are asked for at a time
const PATIENCE = 8000; // milliseconds after which the lists are read although no event has come: a proxy may hold them back

async function every(path) {
  const rows = [];
  let after = "";
  for (;;) {
    const some = await get(`${path}?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`);
    rows.push(...some);
    if (some.length < PAGE) return rows;
    after = some.at(-1).id || some.at(-1).name;
  }
}

const EMPTY = { runs: null, sites: null, warnings: [], state: "begins", version: "", drift: 0, error: null };

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
      if (!due) due = setTimeout(() => { due = 0; if (!over) show(kept.current); }, 60);
    };
    const refused = (error) => (error.status === 401 ? left() : set({ error }));
    const sites = () => every("/clients").then((found) => set({ sites: found, error: null }), refused);
    const runs = () =>
      every("/runs").then((found) => set({ runs: new Map(found.map((each) => [each.id, each])), error: null }), refused);
    const heard = {
      hello: (data) => {
        set({ version: data.version, drift: data.now - Date.now() / 1000 });
        runs();
        sites();
      },
      run: (line) => kept.current.runs && set({ runs: new Map(kept.current.runs).set(line.id, line) }),
      gone: ({ run }) => {
        const left_over = new Map(kept.current.runs);
        left_over.delete(run);
        set({ runs: left_over });
      },
      sites,
      warnings: (data) => set({ warnings: data.warnings }),
    };
    kept.current = EMPTY;
    show(EMPTY);
    let last = Date.now();
    const polling = setInterval(() => {
      if (Date.now() - last < PATIENCE) return;
      runs();
      sites();
    }, PATIENCE);
    const end = follow("/changes", {
      onEvent: (event) => {
        last = Date.now();
        if (heard[event.kind]) heard[event.kind](event.data);
      },
      onAlive: () => { last = Date.now(); },
      onState: (state, error) => {
        set({ state });
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
