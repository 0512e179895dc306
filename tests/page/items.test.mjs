// Packages, agents that never connected and users with few rights, as the dashboard shows them.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rename, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import path from "node:path";
import { after, before, describe } from "node:test";
import { promisify } from "node:util";
import { launch, tab } from "./support/browser.mjs";
import { BINARY, folder, inOrder, PASSWORD, PATIENCE_MS, up, USER } from "./support/holdfast.mjs";

const READER = "reader";
/** Size of each file of a separate agent. */
const FILE_BYTES = 64 * 1024 * 1024;

let tree, data, system, other, agentsPort, server, browser;

/** Writes the package database as dpkg does: to a new file, which is then renamed. */
async function install(versions) {
  const status = path.join(system.path, "var/lib/dpkg/status");
  const text = Object.entries(versions).map(
    ([name, version]) =>
      `Package: ${name}\nStatus: install ok installed\nMaintainer: Example Vendor\n` +
      `Architecture: amd64\nVersion: ${version}\nDescription: ${name}\n\n`,
  );
  await mkdir(path.dirname(status), { recursive: true });
  await writeFile(`${status}.new`, text.join(""));
  await rename(`${status}.new`, status);
}

async function api(bearer, method, place, body) {
  const answer = await fetch(new URL(place, server.url), {
    method,
    headers: { authorization: bearer, "content-type": "application/json" },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const json = await answer.json();
  assert.equal(json.error ?? 0, 0, `${method} ${place}: ${JSON.stringify(json)}`);
  return json.data;
}

async function admin() {
  const basic = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}`;
  const { token } = await api(basic, "POST", "/security/user/authenticate");
  return `Bearer ${token}`;
}

/** Opens a tab that is logged in as this user. */
async function as(user) {
  const { page, context } = await tab(browser, server.url);
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto("/");
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Fleet" }).waitFor();
  return {
    page,
    close: () => context.close(),
    open: (place) => page.evaluate((to) => void (location.hash = to), place),
  };
}

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return port;
}

/** Enrols and starts an agent in a process of its own, which watches this many sparse files. */
async function separateAgent(name, files) {
  const home = path.join(other.path, name);
  const config = path.join(home, "agent.toml");
  await mkdir(path.join(home, "watched"), { recursive: true });
  for (let n = 0; n < files; n++) {
    await writeFile(path.join(home, `watched/${n}`), "");
    await truncate(path.join(home, `watched/${n}`), FILE_BYTES);
  }
  await writeFile(
    config,
    `data = "${home}/data"\nserver = "https://127.0.0.1:${agentsPort}"\n` +
      `[inventory]\npackages = false\n[sync]\nheartbeat = "200ms"\n` +
      `[[watch]]\npath = "${home}/watched"\n`,
  );
  const run = promisify(execFile);
  const token = (await run(BINARY, ["token", "--data", data.path])).stdout.trim();
  await run(BINARY, ["enroll", "--config", config, "--name", name, "--token", token]);
  return spawn(BINARY, ["agent", "--config", config], { stdio: "ignore" });
}

const scanNow = (page) => page.getByRole("button", { name: "Scan now" });

before(async () => {
  tree = await folder("tree");
  data = await folder("data");
  system = await folder("system");
  await install({ openssl: "3.0.2-1", zlib: "1.3" });
  other = await folder("agent");
  agentsPort = await freePort();
  const flags = ["--system", system.path, "--scan-interval", "1s"];
  server = await up(data.path, tree.path, [...flags, "--agents", `127.0.0.1:${agentsPort}`]);
  browser = await launch();
});

after(async () => {
  await browser?.close();
  server?.kill();
  for (const made of [tree, data, system, other]) await made?.remove();
});

const test = inOrder();

describe("items of the dashboard", { concurrency: false }, () => {
  test("an upgraded package shows both versions", async () => {
    const bearer = await admin();
    for (let total = 0; total < 2;) {
      const list = await api(bearer, "GET", "/states/inventory-packages");
      total = list.total_affected_items;
      await new Promise((again) => setTimeout(again, 50));
    }
    await install({ openssl: "3.5.0-2", zlib: "1.3", fresh: "7" });
    const { page, open, close } = await as(USER);
    await open("#/agents/001");
    const row = page.locator("tr.row").filter({ hasText: "openssl:amd64" });
    await row.getByText("version 3.0.2-1 → 3.5.0-2").waitFor();
    await row.locator("a.row-link").click();
    const version = page.locator('.of-values tr[data-field="version"]');
    await version.locator(".before").getByText("3.0.2-1").waitFor();
    await version.locator(".after").getByText("3.5.0-2").waitFor();
    await page
      .locator('.of-values tr[data-field="vendor"]')
      .getByText("Example Vendor")
      .first()
      .waitFor();
    await page.getByRole("link", { name: "This package, now and before" }).click();
    await page.locator("dl.facts").getByText("3.5.0-2").waitFor();
    await open("#/agents/001/package?path=fresh%3Aamd64");
    await page.locator("dl.facts").getByText("Example Vendor").waitFor();
    assert.equal(await page.getByText("Not installed now").count(), 0);
    await close();
  });

  test("an agent that never connected is said to have never connected", async () => {
    const { id } = await api(await admin(), "POST", "/agents", { name: "silent" });
    const { page, open, close } = await as(USER);
    await open(`#/agents/${id}`);
    await page.locator(".empty-title").getByText("Never connected", { exact: true }).waitFor();
    await page.getByText("Not known: the agent never connected").waitFor();
    assert.equal(await page.getByText("Nothing differs").count(), 0);
    assert.equal(await scanNow(page).count(), 0);
    await close();
  });

  test("only a user who may scan is offered a scan", async () => {
    const bearer = await admin();
    const user = { username: READER, password: PASSWORD };
    const [{ id }] = (await api(bearer, "POST", "/security/users", user)).affected_items;
    const roles = (await api(bearer, "GET", "/security/roles")).affected_items;
    const { id: role } = roles.find(({ name }) => name === "readonly");
    await api(bearer, "POST", `/security/users/${id}/roles?role_ids=${role}`);
    const able = await as(USER);
    await able.open("#/agents/001");
    await scanNow(able.page).waitFor();
    await able.close();
    const reader = await as(READER);
    const granted = reader.page.waitForResponse(/security\/users\/me\/policies/);
    await reader.open("#/agents/001");
    await granted;
    await reader.page.getByText("openssl:amd64").waitFor();
    assert.equal(await scanNow(reader.page).count(), 0);
    await reader.close();
  });

  test("a first scan that is not finished is said to be so", async () => {
    // Sparse files that take far longer to read than this test.
    const agent = await separateAgent("slow", 5000);
    const { page, open, close } = await as(USER);
    try {
      await open("#/agents");
      await page.getByRole("link", { name: "slow" }).click();
      await page.locator(".empty-title").getByText("First scan not finished").waitFor();
      await page.locator("dl.facts").getByText("running since").waitFor();
      assert.equal(await page.getByText("Nothing differs").count(), 0);
    } finally {
      agent.kill("SIGKILL");
    }
    await close();
  });

  test("an agent that is silent shows its open gap", async () => {
    const agent = await separateAgent("quiet", 1);
    const { page, open, close } = await as(USER);
    try {
      await open("#/agents");
      await page.getByRole("link", { name: "quiet" }).click();
      await page.getByText("No gaps", { exact: true }).or(page.locator("li.gap")).first().waitFor();
      const facts = page.locator("dl.facts");
      await facts.getByText("applied", { exact: true }).waitFor();
      await facts.getByText(/ago|just now/).first().waitFor();
      agent.kill("SIGSTOP");
      await page.locator("li.gap").getByText("still open").waitFor();
    } finally {
      agent.kill("SIGKILL");
    }
    await close();
  });

  // The local agent is gone afterwards: this is the last test.
  test("a link to a removed agent leads to its history", async () => {
    const bearer = await admin();
    const place = "/agents?agents_list=001&status=all&older_than=0s";
    await api(bearer, "DELETE", place);
    const { page, open, close } = await as(USER);
    await open("#/changes");
    const row = page.locator("tr.row").filter({ hasText: "openssl:amd64" }).first();
    await row.locator(".c-agent a").click();
    await page.getByText("There is no agent 001").waitFor();
    await page.locator("tr.row").filter({ hasText: "openssl:amd64" }).first().waitFor();
    assert.equal(await page.locator("dl.facts").count(), 0);
    await close();
  });
});
