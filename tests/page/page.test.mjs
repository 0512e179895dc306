// The dashboard of the real program in a real browser, on real files, as a user operates it.
// Every wait is for something to appear; nothing waits for time to pass. A value read once from the
// page may be older than the event that a test waited for, so assertions on it are retried.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmod, mkdir, readFile, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe } from "node:test";
import { faint, launch, picture, tab, tabTo } from "./support/browser.mjs";
import {
  eventually,
  folder,
  inOrder,
  PASSWORD,
  PATIENCE_MS,
  up,
  USER,
} from "./support/holdfast.mjs";

const HOSTILE = "<img src=x onerror=alert(1)>\u202etxt.\nsh";
const HOSTILE_SHOWN = "<img src=x onerror=alert(1)>\\u{202e}txt.\\nsh";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");

let tree, data, server, browser, view, page;
/** A name that is not UTF-8. */
const RAW = () => Buffer.concat([Buffer.from(at("raw-")), Buffer.from([0xff])]);
const at = (name) => path.join(tree.path, name);

before(async () => {
  tree = await folder("tree");
  data = await folder("data");
  await mkdir(at("conf"));
  await writeFile(at("conf/app.ini"), "listen = 80\n");
  await writeFile(at("secret"), "hush");
  await chmod(at("secret"), 0o600);
  await writeFile(at("doomed"), "not for long");
  await symlink("conf/app.ini", at("current"));
  await writeFile(at("untouched"), "as ever");
  server = await up(data.path, tree.path);
  browser = await launch();
  view = await tab(browser, server.url, { colorScheme: "light" });
  page = view.page;
  page.setDefaultTimeout(PATIENCE_MS);
});

after(async () => {
  await browser?.close();
  server?.kill();
  await tree?.remove();
  await data?.remove();
});

async function logIn(password = PASSWORD) {
  await page.getByLabel("User").fill(USER);
  await page.getByLabel("Password").fill(password);
  await page.keyboard.press("Enter");
}

/** Navigates to a view and waits until the page shows it instead of the previous view. */
const open = async (place, heading) => {
  const went = (to) =>
    new Promise((done) => {
      if (location.hash === to) return done();
      addEventListener("hashchange", () => setTimeout(done), { once: true });
      location.hash = to;
    });
  await page.evaluate(went, place);
  await page.getByRole("heading", { level: 1, name: heading }).waitFor();
};

/** Asserts that the browser reported exactly one error since the last check, with these words. */
async function complained(words) {
  await eventually(() => assert.equal(view.complaints.length, 1));
  assert.match(view.complaints.splice(0)[0], words);
}

/** Waits until an element that matches the selector has the focus. */
const focused = (selector) =>
  page.waitForFunction((wanted) => document.activeElement?.matches(wanted), selector);

const focusedLink = () => page.evaluate(() => document.activeElement?.getAttribute("href"));

/** Returns the token of the page's login. */
const token = () =>
  page.evaluate(() => JSON.parse(sessionStorage.getItem("holdfast.session")).token);

/** Sends a request to the server without the page. */
const ask = (place, bearer) =>
  fetch(new URL(place, server.url), { headers: { authorization: `Bearer ${bearer}` } });

const rowOf = (name) =>
  page.locator("tr.row").filter({ has: page.locator(`a.row-link[title=${JSON.stringify(name)}]`) });

/** Returns an attribute's old and new value in the open change; null if it is not shown. */
const values = (label) =>
  page.locator(".of-values tbody tr").evaluateAll((rows, wanted) => {
    const row = rows.find((row) => row.querySelector("th").textContent.startsWith(wanted));
    if (row === undefined) return null;
    const [before, after] = [...row.querySelectorAll("td")].map((cell) => cell.innerText.trim());
    const said = [...row.querySelectorAll("th *")].map((element) => element.textContent);
    return { before, after, changed: said.includes("changed") };
  }, label);

const shows = (label, expected) =>
  eventually(async () => assert.deepEqual(await values(label), expected));

const rowSays = (name, said) =>
  eventually(async () => assert.match(await rowOf(name).innerText(), said));

async function openChange(name, kind) {
  await open(`#/agents/001`, /./);
  await rowOf(at(name)).filter({ hasText: kind }).first().locator("a.row-link").click();
  await page
    .getByRole("heading", { level: 1 })
    .filter({ hasText: path.basename(name) })
    .waitFor();
}

async function scanNow() {
  await page.getByRole("button", { name: "Scan now" }).click();
  await page.getByText(/^(Command issued|The agent has received the command|Scanned)\./).waitFor();
}

const test = inOrder();

describe("the dashboard", { concurrency: false }, () => {
  test("a wrong password is refused with the server's words", async () => {
    await page.goto("/");
    await logIn("wrong-Password-1");
    await page.getByRole("alert").getByText("Invalid credentials").waitFor();
    await picture(page, "login-refused");
    await eventually(async () => assert.deepEqual(await page.evaluate(faint), []));
    // The browser also reports the status of that answer as an error.
    await complained(/401.*security\/user\/authenticate/);
  });

  test("the fleet's three widgets come from one request", async () => {
    await logIn();
    const widgets = async () => {
      const widget = (name) => page.getByRole("region", { name });
      await widget("Agents by status")
        .getByRole("link", { name: /active 1$/ })
        .waitFor();
      await widget("Agents by group")
        .getByRole("link", { name: /default 1$/ })
        .waitFor();
      await widget("Agents by operating system").getByRole("link", { name: / 1$/ }).waitFor();
      await page.getByRole("heading", { name: "Coverage" }).waitFor();
      await page.locator(".waiting").first().waitFor({ state: "detached" });
    };
    // The agent's first report may take a while. From then on the page refreshes nothing by itself.
    await widgets();
    await page.getByRole("button", { name: /^Live/ }).click();
    await page.getByRole("button", { name: /^Paused/ }).waitFor();
    await open("#/agents", "Agents");
    await page.locator("tr.row").first().waitFor();
    view.requests.length = 0;
    await open("#/", "Fleet");
    await widgets();
    const asked = view.requests.filter((r) => r.method === "GET").map((r) => r.pathname);
    const others = ["/changes", "/coverage", "/favicon.svg", "/readyz"];
    assert.deepEqual(
      asked.filter((p) => !others.includes(p)),
      ["/agents/summary"],
    );
    await page.getByRole("button", { name: /^Paused/ }).click();
    await page.getByRole("button", { name: /^Live/ }).waitFor();
  });

  test("the agent is active and every file of its tree is there", async () => {
    await page.getByRole("link", { name: "Agents", exact: true }).click();
    const row = page.locator("tr.row", { hasText: "001" });
    await row.getByText("active", { exact: true }).waitFor();
    assert.equal(await page.locator("tr.row").count(), 1, "the server itself is no agent");
    await row.locator("a.row-link").click();
    await page.getByRole("link", { name: "Files", exact: true }).click();
    for (const name of ["conf/app.ini", "secret", "doomed", "current", "untouched"]) {
      await rowOf(at(name)).waitFor();
    }
    await rowSays(at("secret"), /4 B\s+0600/);
    await page.getByLabel("Search files").fill("app.i");
    await page.getByText("1 item found").waitFor();
    await eventually(async () => assert.equal(await page.locator("tr.row").count(), 1));
    await page.keyboard.press("Escape");
    await rowOf(at("untouched")).waitFor();
    await picture(page, "files-light");
  });

  test("what happens on the disk appears after a scan", async () => {
    await writeFile(at("conf/app.ini"), "listen = 443\ntls = on\n");
    await chmod(at("secret"), 0o644);
    await unlink(at("doomed"));
    await rm(at("current"));
    await symlink("untouched", at("current"));
    await writeFile(at("arrived"), "hello");
    await writeFile(at(HOSTILE), "#!/bin/sh\n");
    await writeFile(RAW(), "no text");
    await page.getByRole("link", { name: "Changes", exact: true }).last().click();
    await scanNow();
    const expected = {
      "conf/app.ini": /modified[\s\S]*content \+10 B/,
      secret: /modified[\s\S]*mode 0600 → 0644/,
      doomed: /deleted[\s\S]*was a file/,
      current: /modified[\s\S]*target conf\/app\.ini → untouched/,
      arrived: /created[\s\S]*5 B/,
      [HOSTILE_SHOWN]: /created/,
      "raw-\\xff": /created/,
    };
    for (const [name, said] of Object.entries(expected)) {
      await rowOf(at(name)).waitFor();
      await rowSays(at(name), said);
    }
    assert.equal(await rowOf(at("untouched")).count(), 0);
    await page.getByText(/^Scanned\./).waitFor();
    await picture(page, "agent-light");
  });

  test("a modified file shows old and new values side by side", async () => {
    await openChange("conf/app.ini", "modified");
    await shows("SHA-256", {
      before: sha256("listen = 80\n"),
      after: sha256("listen = 443\ntls = on\n"),
      changed: true,
    });
    await shows("Size", { before: "12 B", after: "22 B", changed: true });
    // Attributes that are equal are not shown.
    await shows("Mode", null);
    await page.getByRole("button", { name: /unchanged too/ }).click();
    await shows("Mode", { before: "0644 rw-r--r--", after: "0644 rw-r--r--", changed: false });
    await picture(page, "change-light");
  });

  test("new permissions, a new target, a new and a deleted file show theirs", async () => {
    await openChange("secret", "modified");
    await shows("Mode", {
      before: "0600 rw-------",
      after: "0644 rw-r--r--",
      changed: true,
    });
    await shows("SHA-256", null);
    await openChange("current", "modified");
    await shows("Points to", {
      before: "conf/app.ini",
      after: "untouched",
      changed: true,
    });
    await openChange("arrived", "created");
    await shows("SHA-256", {
      before: "—",
      after: sha256("hello"),
      changed: false,
    });
    await openChange("doomed", "deleted");
    await shows("SHA-256", {
      before: sha256("not for long"),
      after: "—",
      changed: false,
    });
  });

  test("a hostile name is text and nothing else", async () => {
    await openChange(HOSTILE_SHOWN, "created");
    assert.equal(await page.locator("img").count(), 0);
    await eventually(async () =>
      assert.ok((await page.locator("h1").innerText()).endsWith(HOSTILE_SHOWN)),
    );
    await page.getByRole("link", { name: /This file/ }).click();
    await page.getByText(sha256("#!/bin/sh\n")).waitFor();
    await rowOf(at(HOSTILE_SHOWN)).waitFor();
    await picture(page, "hostile-name-light");
  });

  test("a name that is not text keeps its exact bytes", async () => {
    await openChange("raw-\\xff", "created");
    await page.getByText(RAW().toString("hex")).waitFor();
    await shows("SHA-256", { before: "—", after: sha256("no text"), changed: false });
    await page.getByRole("link", { name: /This file/ }).click();
    await page.getByText(sha256("no text")).waitFor();
  });

  test("the history narrows by kind, path and agent", async () => {
    await open("#/changes", "Changes");
    await rowOf(at("secret")).waitFor();
    await page.getByRole("button", { name: "deleted" }).click();
    await page.getByText("1 change on this page").waitFor();
    await rowOf(at("doomed")).waitFor();
    await page.getByRole("link", { name: "Clear" }).click();
    await page.getByLabel("Path begins with").fill(at("conf"));
    await rowOf(at("secret")).waitFor({ state: "detached" });
    await rowOf(at("conf/app.ini")).waitFor();
    await page.getByLabel("Agent", { exact: true }).fill("002");
    await page.getByText("No change fits").waitFor();
    await page.getByRole("link", { name: "Clear" }).click();
    await page.getByLabel("Time", { exact: true }).selectOption("last hour");
    await rowOf(at("secret")).waitFor();
  });

  test("the keyboard alone leads to a change and back", async () => {
    await open("#/", "Fleet");
    await page.reload();
    await rowOf(at("secret")).waitFor();
    await page.keyboard.press("Tab");
    await focused("a.skip");
    await page.keyboard.press("Enter");
    await focused("#main");
    await tabTo(page, () => document.activeElement.matches("a.row-link"));
    await page.waitForFunction(() => {
      const style = getComputedStyle(document.activeElement);
      return style.outlineStyle !== "none" && Number.parseFloat(style.outlineWidth) >= 2;
    });
    const first = await focusedLink();
    await page.keyboard.press("ArrowDown");
    await eventually(async () => assert.notEqual(await focusedLink(), first));
    const second = await focusedLink();
    await page.keyboard.press("Enter");
    await page.getByRole("table", { name: "Old and new values" }).waitFor();
    await eventually(async () => assert.equal(await page.evaluate(() => location.hash), second));
    await focused("h1");
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { level: 1, name: "Changes" }).waitFor();
    await eventually(async () => assert.equal(await focusedLink(), second));
    await page.keyboard.press("/");
    await focused("[data-slash]");
    await page.keyboard.type(at("arrived"));
    await page.keyboard.press("Enter");
    await rowOf(at("secret")).waitFor({ state: "detached" });
    await rowOf(at("arrived")).waitFor();
  });

  test("a refresh brings the new and leaves the focus where it is", async () => {
    await open("#/agents/001", /./);
    await writeFile(at("later"), "later");
    await scanNow();
    const link = rowOf(at("secret")).first().locator("a.row-link");
    await link.focus();
    await rowOf(at("later")).waitFor();
    assert.ok(await link.evaluate((element) => element === document.activeElement));
  });

  test("long lists come in pages, each item once", async () => {
    const names = Array.from({ length: 130 }, (_, i) => at(`many/${String(i).padStart(3, "0")}`));
    // Moved in as a whole: a file that is read before it has its content is changed twice.
    const outside = await folder("many");
    const many = path.join(outside.path, "many");
    await mkdir(many);
    for (const name of names) await writeFile(path.join(many, path.basename(name)), name);
    await rename(many, at("many"));
    await outside.remove();
    await open("#/agents/001", /./);
    await scanNow();
    await page.getByText(/^Scanned\./).waitFor();
    const query = new URLSearchParams({ path: at("many/") });
    const bearer = await token();
    await eventually(async () => {
      const { data } = await (await ask(`/changes?limit=500&${query}`, bearer)).json();
      assert.equal(data.affected_items.length, names.length);
    });
    const shown = () =>
      page.locator("a.row-link").evaluateAll((all) => all.map((link) => link.title));

    await open(`#/changes?${query}`, "Changes");
    await page.getByText("100 changes on this page").waitFor();
    const first = await shown();
    await page.getByRole("link", { name: "Older" }).click();
    await page.getByText("30 changes on this page").waitFor();
    assert.deepEqual([...first, ...(await shown())].sort(), names);
    await page.getByRole("link", { name: "Newest" }).click();
    await page.getByText("100 changes on this page").waitFor();
    assert.deepEqual(await shown(), first);

    await open("#/agents/001/files?search=many%2F", /./);
    await page.getByText("1–100 of 130").waitFor();
    assert.deepEqual(await shown(), names.slice(0, 100));
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("101–130 of 130").waitFor();
    assert.deepEqual(await shown(), names.slice(100));
    await page.getByLabel("Order").selectOption("largest first");
    await page.getByText("1–100 of 130").waitFor();
  });

  test("a refusal is shown with the server's words", async () => {
    assert.deepEqual(view.complaints.splice(0), []);
    await open("#/changes/none", "Change");
    await page.getByRole("alert").getByText("no such change").waitFor();
    await complained(/404.*changes\/none/);
  });

  test("a server that does not answer is said so, and what is known stays", async () => {
    await open("#/", "Fleet");
    await page.locator("tr.row").first().waitFor();
    await view.context.setOffline(true);
    await page.getByRole("alert").getByText("the server does not answer").first().waitFor();
    await page.getByRole("button", { name: /No answer/ }).waitFor();
    assert.ok((await page.locator("tr.row").count()) > 0);
    await view.context.setOffline(false);
    await page.getByRole("button", { name: /Live/ }).waitFor();
    await page.getByRole("alert").first().waitFor({ state: "detached" });
    assert.ok(view.complaints.splice(0).every((c) => c.includes("ERR_INTERNET_DISCONNECTED")));
  });

  test("every view is legible in light and dark, and fits the narrowest screen", async () => {
    await open(`#/changes?${new URLSearchParams({ path: at("conf") })}`, "Changes");
    const change = await rowOf(at("conf/app.ini"))
      .first()
      .locator("a.row-link")
      .getAttribute("href");
    const places = {
      fleet: "#/",
      agents: "#/agents",
      agent: "#/agents/001",
      files: "#/agents/001/files",
      file: `#/agents/001/file?${new URLSearchParams({ path: at("conf/app.ini") })}`,
      changes: "#/changes?kind=modified&within=between",
      change,
    };
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const width of [1280, 360]) {
        await page.setViewportSize({ width, height: 800 });
        for (const [name, place] of Object.entries(places)) {
          await open(place, /./);
          await page.locator(".waiting").first().waitFor({ state: "detached" });
          await page.locator("table, .counts").first().waitFor();
          const label = `${name}-${scheme}-${width}`;
          await picture(page, label);
          await eventually(async () => {
            assert.deepEqual(await page.evaluate(faint), [], label);
            const wide = await page.evaluate(() => document.documentElement.scrollWidth);
            assert.ok(wide <= width, `${label} is ${wide} wide`);
          });
        }
      }
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    const colours = page.getByRole("button", { name: /^Colours/ });
    for (const theme of ["light", "dark", undefined]) {
      await colours.click();
      await page.waitForFunction(
        (wanted) => document.documentElement.dataset.theme === wanted,
        theme,
      );
    }
  });

  test("a session that ended is taken up where it was", async () => {
    assert.deepEqual(view.complaints.splice(0), []);
    await open("#/agents/001/files?search=app", /./);
    await page.evaluate(() => {
      const kept = JSON.parse(sessionStorage.getItem("holdfast.session"));
      sessionStorage.setItem("holdfast.session", JSON.stringify({ ...kept, token: "a.b.c" }));
    });
    await page.reload();
    await page.getByText("Your session has ended").waitFor();
    await logIn();
    await rowOf(at("conf/app.ini")).waitFor();
    assert.ok(view.complaints.splice(0).every((c) => c.includes("401")));
  });

  test("logging out ends the session here and on the server", async () => {
    const bearer = await token();
    const status = async () => (await ask("/agents/summary", bearer)).status;
    assert.equal(await status(), 200);
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByText("You are logged out.").waitFor();
    await page.waitForFunction(() => sessionStorage.length === 0);
    assert.equal(await status(), 401);
    // A refresh may have been in flight when the session ended.
    assert.ok(view.complaints.splice(0).every((c) => c.includes("401")));
    await page.reload();
    await page.getByLabel("Password").waitFor();
  });

  test("nothing complained, and nothing was asked of another host", async () => {
    assert.deepEqual(view.complaints, []);
    const origins = new Set(view.requests.map((r) => r.origin));
    assert.deepEqual([...origins], [new URL(server.url).origin]);
  });

  test("an interrupt stops the program cleanly", async () => {
    assert.equal(await server.stop(), 0);
  });

  test("a clock that is held is named with the remedy", async () => {
    const file = path.join(data.path, "clock.json");
    const stored = JSON.parse(await readFile(file, "utf8"));
    // This is as if the server had been off for 300 days, or the wall clock were 300 days ahead.
    const time = new Date(Date.parse(stored.time) - 300 * 86_400_000).toISOString();
    await writeFile(file, JSON.stringify({ ...stored, time }));
    server = await up(data.path, tree.path);
    await page.goto(server.url);
    await logIn();
    const notice = page.getByRole("status").filter({ hasText: "The server's clock is held" });
    await notice.getByText("holdfast clock accept").waitFor();
    await picture(page, "clock-held");
    await eventually(async () => assert.deepEqual(await page.evaluate(faint), []));
    const accepted = await fetch(new URL("/clock/accept", server.url), {
      method: "PUT",
      headers: { authorization: `Bearer ${await token()}` },
    });
    assert.equal(accepted.status, 200);
    await notice.waitFor({ state: "detached" });
    assert.equal(await server.stop(), 0);
  });
});
