// The owner's page: what waits, what is at work, what left, what was learnt, and the policy.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { change, enter, get } from "./calls.js";
import { Act, ErrorBox, Live } from "./parts.js";
import { Egress } from "./egress.js";
import { Budget, Decisions, Now, Policy, Results, Waiting } from "./sections.js";

const EVERY = 2000; // milliseconds between two looks, while the page is seen

// What changes. The agent answers without content as long as nothing did.
function useNow(out) {
  const [now, setNow] = useState(null);
  const [state, setState] = useState("begins");
  const [turn, again] = useState(0);
  useEffect(() => {
    let timer = 0;
    let known = "";
    let over = false;
    const look = async () => {
      if (!document.hidden) {
        try {
          const found = await get(`now?known=${known}`);
          if (over) return;
          if (found) setNow(found);
          known = found ? found.digest : known;
          setState("live");
        } catch (error) {
          if (over) return;
          if (error.status === 401) return out(error);
          setState("away");
        }
      }
      timer = setTimeout(look, EVERY);
    };
    look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [turn]);
  return [now, state, () => again((n) => n + 1)];
}

function App() {
  const [state, setState] = useState("begins");
  const [error, setError] = useState(null);
  const out = (found) => {
    setError(found);
    setState("out");
  };
  useEffect(() => {
    enter().then(() => setState("in"), out);
  }, []);
  if (state === "begins") return html`<p class="quiet centre">Loading …</p>`;
  if (state === "out") return html`<main class="centre"><h1>Your site</h1><${ErrorBox} error=${error} /></main>`;
  return html`<${Signed} out=${out} />`;
}

const SECTIONS = { waiting: "Waiting for you", now: "Now", egress: "What left", results: "Results", budget: "Privacy budget", policy: "Policy" };

function Signed({ out }) {
  const [now, state, again] = useNow(out);
  const leave = async () => {
    await change("leave", {});
    out(new Error("You have left this page"));
  };
  const to = (name) => (event) => {
    event.preventDefault();
    const found = document.getElementById(name);
    found.scrollIntoView();
    found.focus();
  };
  if (!now) return html`<p class="quiet centre">Loading …</p>`;
  const act = async (path, body) => {
    await change(path, body);
    again();
  };
  return html`
    <a class="skip" href="#main" onClick=${to("main")}>To the content</a>
    <header>
      <span class="brand"><img src="/pages/icon.svg" alt="" width="24" height="24" /><bdi>${now.site}</bdi></span>
      <nav aria-label="Sections">
        ${Object.entries(SECTIONS).map(([name, title]) => html`<a href=${`#${name}`} onClick=${to(name)}>${title}${name === "waiting" && now.waiting.length ? ` (${now.waiting.length})` : ""}</a>`)}
      </nav>
      <${Live} state=${state} />
      <${Act} label="Leave" act=${leave} kind="small" />
    </header>
    <main id="main" tabindex="-1">
      <h1>What happens at <bdi>${now.site}</bdi></h1>
      <section id="waiting" tabindex="-1" aria-labelledby="waiting-title"><${Waiting} now=${now} act=${act} /></section>
      <section id="now" tabindex="-1" aria-labelledby="now-title"><${Now} now=${now} act=${act} /></section>
      <section id="egress" tabindex="-1" aria-labelledby="egress-title"><${Egress} now=${now} /></section>
      <section id="results" tabindex="-1" aria-labelledby="results-title"><${Results} now=${now} /></section>
      <section id="budget" tabindex="-1" aria-labelledby="budget-title"><${Budget} now=${now} /></section>
      <section id="policy" tabindex="-1" aria-labelledby="policy-title"><${Policy} /><${Decisions} now=${now} act=${act} /></section>
    </main>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
