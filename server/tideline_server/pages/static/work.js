// What each site is doing: its open orders in the runs that are not over.

import { useEffect, useState } from "./vendor/preact.js";
import { ordersOf } from "./following.js";
import { OPEN } from "./words.js";

const MOST = 20; // open runs that are looked into, the newest
const PAUSE = 5000;

// Site -> its open orders, each with the run's id and name.
export function useWork(runs) {
  const [work, setWork] = useState(new Map());
  const open = runs ? [...runs.values()].filter((run) => OPEN.has(run.status)).sort((one, other) => other.created - one.created).slice(0, MOST) : [];
  const key = open.map((run) => run.id).join();
  useEffect(() => {
    let over = false;
    let timer = 0;
    const look = async () => {
      const found = new Map();
      for (const run of open) {
        const orders = await ordersOf(run.id).catch(() => []);
        if (over) return;
        for (const order of orders) if (order.status === "open") found.set(order.client, [...(found.get(order.client) || []), { ...order, run: run.id, name: run.name || run.id }]);
      }
      setWork(found);
      if (open.length) timer = setTimeout(look, PAUSE);
    };
    look();
    return () => { over = true; clearTimeout(timer); };
  }, [key]);
  return work;
}
