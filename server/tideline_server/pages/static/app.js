// The dashboard: who is signed in, which page is open, and what all pages share.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { AWAY, change, choose, chosen, enter, get, may, signIn } from "./api.js";
import { useChanges } from "./changes.js";
import { ErrorBox, Live, Menu } from "./parts.js";
import { SignIn } from "./pages/sign-in.js";
import { Runs } from "./pages/runs.js";
import { Run } from "./pages/run.js";
import { Compare } from "./pages/compare.js";
import { Sites } from "./pages/sites.js";
import { Start } from "./pages/start.js";
import { Audit } from "./pages/audit.js";
import { Doctor } from "./pages/doctor.js";

const PAGES = {
  runs: ["Runs", Runs],
  sites: ["Sites", Sites],
  start: ["Start", Start, "operator"],
  doctor: ["Doctor", Doctor],
  audit: ["Audit", Audit, "admin"],
};

// "#/runs/5f0c?tab=sites" -> ["runs", "5f0c"], {tab: "sites"}
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { words: path.split("/").filter(Boolean).map(decodeURIComponent), asked: new URLSearchParams(query || "") };
}

function usePlace() {
  const [at, go] = useState(place());
  useEffect(() => {
    const moved = () => {
      go(place());
      window.scrollTo(0, 0);
    };
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return at;
}

// A demonstration prints a link with a key behind the #, which browsers send to nobody. It serves where nobody is signed in.
async function fromLink() {
  const key = /^#key=([\w-]+)$/.exec(location.hash);
  if (!key) return;
  history.replaceState(null, "", "/#/runs");
  const known = await get("/session").catch(() => null);
  if (!known) await signIn(key[1]);
}

function App() {
  const [session, setSession] = useState(undefined);
  const [error, setError] = useState(null);
  const look = () =>
    get("/session")
      .then((found) => {
        enter(found);
        setError(null);
        setSession(found);
      })
      .catch((found) => {
        if (found.status === 401) setSession(null);
        else {
          setError(found);
          if (found.kind === AWAY) setTimeout(look, 3000);
        }
      });
  useEffect(() => {
    fromLink().then(look, look);
  }, []);
  if (error) return html`<main class="centre"><${ErrorBox} error=${error} /></main>`;
  if (session === undefined) return html`<p class="quiet centre">Loading …</p>`;
  if (session === null) return html`<${SignIn} done=${look} />`;
  return html`<${Signed} session=${session} left=${() => setSession(null)} />`;
}

function Signed({ session, left }) {
  const at = usePlace();
  const [project, setProject] = useState(chosen());
  const pick = (name) => {
    choose(name);
    setProject(name);
  };
  const changes = useChanges(project, left);
  const [word = "runs", id] = at.words;
  const page = word === "compare" ? ["Compare", Compare] : word === "runs" && id ? ["Run", Run] : PAGES[word];
  useEffect(() => {
    document.title = `${page ? page[0] : "Nothing here"}${id && word !== "compare" ? ` ${id}` : ""} – Tideline`;
  }, [word, id]);
  const out = async () => {
    if (session.kind !== "open") await change("POST", "/sign-out").catch(() => {});
    left();
  };
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header>
      <a class="brand" href="#/runs"><img src="/pages/icon.svg" alt="" width="24" height="24" />Tideline</a>
      <nav aria-label="Pages">
        ${Object.entries(PAGES)
          .filter(([, [, , role]]) => !role || may(role))
          .map(([name, [title]]) => html`<a href=${`#/${name}`} aria-current=${word === name ? "page" : null}>${title}</a>`)}
      </nav>
      <${Live} state=${changes.state} />
      <${Menu} session=${session} project=${project} pick=${pick} out=${out} version=${changes.version} />
    </header>
    <main id="main" tabindex="-1" key=${`${word} ${id || ""} ${project}`}>
      ${changes.warnings.length > 0 && word !== "doctor" &&
      html`<p class="warn" role="status">${changes.warnings.join("; ")} – <a href="#/doctor">what to do</a></p>`}
      ${page ? html`<${page[1]} id=${id} asked=${at.asked} changes=${changes} />` : html`<h1>Nothing here</h1><p>There is no page of this name. <a href="#/runs">To the runs</a></p>`}
    </main>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
