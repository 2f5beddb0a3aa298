// The dashboard: who is signed in, which page is open, and what all pages share.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { AWAY, change, choose, chosen, enter, get, may, signIn } from "./api.js";
import { begin, useChanges } from "./changes.js";
import { ErrorBox, Live, Menu } from "./parts.js";
import { SignIn } from "./pages/sign-in.js";
import { Runs } from "./pages/runs.js";

// The list is there at once; the others are loaded when they are opened, or once there is time.
const later = (load) => {
  let found = null;
  const again = () => (found ??= load().catch((error) => { found = null; throw error; }));
  const Later = (props) => {
    const [Page, setPage] = useState(null);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      again().then((page) => setPage(() => page), () => setFailed(true));
    }, []);
    if (failed) return html`<p class="error" role="alert">This page cannot be loaded: the coordinator does not answer. <a href=${location.hash} onClick=${() => location.reload()}>Load it again</a></p>`;
    return Page ? html`<${Page} ...${props} />` : html`<p class="quiet">Loading …</p>`;
  };
  Later.load = again;
  return Later;
};
const Run = later(() => import("./pages/run.js").then((page) => page.Run));
const Compare = later(() => import("./pages/compare.js").then((page) => page.Compare));

const PAGES = {
  runs: ["Runs", Runs],
  sites: ["Sites", later(() => import("./pages/sites.js").then((page) => page.Sites))],
  start: ["Start", later(() => import("./pages/start.js").then((page) => page.Start)), "operator"],
  doctor: ["Doctor", later(() => import("./pages/doctor.js").then((page) => page.Doctor))],
  audit: ["Audit", later(() => import("./pages/audit.js").then((page) => page.Audit)), "admin"],
};
const AHEAD = 2500; // milliseconds after which the other pages are loaded, too: they are there should the coordinator go away

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

// Whether somebody was signed in when this browser was here last: nothing secret, and only a guess.
const WAS = "tideline-was-signed-in";
function remember(was) {
  try {
    if (was) localStorage.setItem(WAS, "1");
    else localStorage.removeItem(WAS);
  } catch {
    // A browser that keeps nothing asks a moment later.
  }
}

function wasSignedIn() {
  try {
    return localStorage.getItem(WAS) !== null;
  } catch {
    return false;
  }
}

// The session is asked for while the page is still being put together.
let first = /^#key=/.test(location.hash) ? null : get("/session");
first?.catch(() => {});
if (first && wasSignedIn()) begin();
function askedFirst() {
  const asked = first ?? get("/session");
  first = null;
  return asked;
}

function App() {
  const [session, setSession] = useState(undefined);
  const [error, setError] = useState(null);
  const look = () =>
    askedFirst()
      .then((found) => {
        remember(true);
        enter(found);
        setError(null);
        setSession(found);
      })
      .catch((found) => {
        if (found.status === 401) {
          remember(false);
          setSession(null);
        } else {
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
  useEffect(() => {
    const timer = setTimeout(() => [Run, Compare, ...Object.values(PAGES).map(([, Page]) => Page)].forEach((Page) => Page.load?.().catch(() => {})), AHEAD);
    return () => clearTimeout(timer);
  }, []);
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
