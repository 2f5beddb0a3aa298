// Who are you? With an API key, or with the provider of identities where there is one.

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, signIn } from "../api.js";
import { ErrorBox } from "../parts.js";

export function SignIn({ done }) {
  const [provider, setProvider] = useState(null);
  const [key, setKey] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in – Tideline";
    get("/sign-in").then((found) => setProvider(found.provider), () => {});
  }, []);
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(key.trim());
      setKey("");
      done();
    } catch (found) {
      setError(found);
    }
    setBusy(false);
  };
  const next = encodeURIComponent(`/${location.hash}`);
  return html`<main class="sign-in" id="main">
    <h1><img src="/pages/icon.svg" alt="" width="36" height="36" /> Tideline</h1>
    ${provider && html`<p><a class="button" href=${`/sign-in/start?next=${next}`}>Sign in with ${host(provider.issuer)}</a></p><p class="quiet">or</p>`}
    <form onSubmit=${enter}>
      <label>API key <input type="password" autocomplete="current-password" required value=${key} onInput=${(e) => setKey(e.target.value)} autofocus /></label>
      <button disabled=${busy || !key.trim()}>Sign in</button>
    </form>
    <${ErrorBox} error=${error} />
    <p class="quiet">Admins make keys with <code>tideline keys add</code>. The coordinator's own is in its home, in <code>admin.key</code>.</p>
  </main>`;
}

function host(address) {
  try {
    return new URL(address).host;
  } catch {
    return "your organisation";
  }
}
