// One run as it goes on: its result, the orders of its newest exchange, and its newest events.

import { useEffect, useRef, useState } from "./vendor/preact.js";
import { get, send } from "./api.js";
import { follow, parsed } from "./live.js";
import { OPEN } from "./words.js";

const TAIL = 300; // events that a page begins with
const KEPT = 2000; // newest events that it remembers
const FIRST = 4000; // milliseconds until something has come: the stream begins with what there is, unless a proxy holds it back
const SILENT = 20000; // the same later on: the coordinator says something every 15 s
const SOON = 700; // milliseconds in which changes are one reading
const CHANGING = new Set(["closed", "completed", "failed", "cancelled", "stalled", "resumed", "answered", "held_up"]);

// Events that there are, read at once: also through a proxy that holds streams back.
export async function eventsOf(id, query) {
  const answer = await send(`/runs/${encodeURIComponent(id)}/events?follow=false&${query}`, { headers: { Accept: "text/event-stream" } });
  return (await answer.text()).split("\n\n").map(parsed).filter(Boolean).map((event) => event.data);
}

export const ordersOf = (id, cursor) => get(`/runs/${encodeURIComponent(id)}/orders${cursor === undefined ? "" : `?cursor=${cursor}`}`);

function joined(before, some) {
  const last = before.length ? before.at(-1).seq : 0;
  const news = some.filter((event) => event.seq > last);
  return news.length ? [...before, ...news].slice(-KEPT) : before;
}

// {run, orders, events, error, look}: read again when an event says that something has changed.
export function useRun(id) {
  const [shown, show] = useState({ run: null, orders: [], events: [], error: null });
  const now = useRef(null);
  useEffect(() => {
    const path = `/runs/${encodeURIComponent(id)}`;
    let over = false;
    let due = 0;
    let busy = false;
    let waiting = [];
    let heard = Date.now();
    let patience = FIRST;
    const set = (more) => over || show((before) => ({ ...before, ...more }));
    const look = async () => {
      if (busy) return soon();
      busy = true;
      try {
        const run = await get(path);
        set({ run, error: null });
        if (OPEN.has(run.status)) set({ orders: await ordersOf(id) });
      } catch (error) {
        set({ error });
      } finally {
        busy = false;
      }
    };
    const soon = () => {
      if (!due && !over) due = setTimeout(() => { due = 0; look(); }, SOON);
    };
    const drawing = setInterval(() => {
      const some = waiting;
      waiting = [];
      if (some.length && !over) show((before) => ({ ...before, events: joined(before.events, some) }));
    }, 250);
    const reading = setInterval(() => {
      if (Date.now() - heard < patience) return;
      look();
      eventsOf(id, `last=${TAIL}`).then((some) => waiting.push(...some), () => {});
    }, FIRST);
    now.current = look;
    show({ run: null, orders: [], events: [], error: null });
    look();
    const alive = () => { heard = Date.now(); patience = SILENT; };
    const end = follow(`${path}/events?last=${TAIL}`, {
      onAlive: alive,
      onEvent: ({ data }) => {
        waiting.push(data);
        if (CHANGING.has(data.kind)) soon();
      },
    });
    return () => {
      over = true;
      clearInterval(drawing);
      clearInterval(reading);
      clearTimeout(due);
      end();
    };
  }, [id]);
  return { ...shown, look: () => now.current() };
}
