// The login form.

import type { TargetedSubmitEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { moved } from "../core/route";
import { farewell, logIn } from "../core/session";
import { Sign } from "../parts/marks";
import { Failure } from "../parts/text";

export function Login() {
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const user = useRef<HTMLInputElement>(null);
  const password = useRef<HTMLInputElement>(null);

  useEffect(() => {
    document.title = "Log in · Holdfast";
    user.current?.focus();
  }, []);

  const submit = async (event: TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await logIn(user.current?.value ?? "", password.current?.value ?? "");
      moved.value = true;
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError(0, "Unexpected", String(cause)));
      setBusy(false);
      password.current?.select();
    }
  };

  return (
    <main class="login">
      <form class="card login-card" onSubmit={(event) => void submit(event)}>
        <div class="login-brand">
          <Sign />
          <h1>Holdfast</h1>
        </div>
        <p class="quiet">Changes on all your machines</p>
        {error ? <Failure error={error} /> : null}
        {error === null && farewell.value !== "" ? (
          <p class="notice" role="status">
            {farewell.value}
          </p>
        ) : null}
        <div class="field">
          <label for="user">User</label>
          <input
            ref={user}
            id="user"
            name="username"
            autocomplete="username"
            autocapitalize="none"
            spellcheck={false}
            required
          />
        </div>
        <div class="field">
          <label for="password">Password</label>
          <input
            ref={password}
            id="password"
            name="password"
            type="password"
            autocomplete="current-password"
            required
          />
        </div>
        <button type="submit" class="button primary" aria-disabled={busy}>
          {busy ? "Logging in…" : "Log in"}
        </button>
        <p class="quiet small">
          The first password was printed at the first start, or is in the file admin-password of the
          data folder. <code>holdfast users password admin</code> on the server's host sets a new
          one.
        </p>
      </form>
    </main>
  );
}
