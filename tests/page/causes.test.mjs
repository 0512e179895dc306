// Causes of changes: unexplained changes come first, and an upgrade is one line that opens.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
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

const EXPLAIN = fileURLToPath(new URL("support/explain.py", import.meta.url));
const FILES = 60;
/** Each of the two packages has its files and a folder. */
const CHANGES = 2 * (FILES + 1);
const LINE = `apt: 2 packages, ${CHANGES} changes`;

let tree, unpacking, data, server, browser, view, page;
const at = (name) => path.join(tree.path, name);

async function api(place) {
  const basic = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString("base64")}`;
  const login = new URL("/security/user/authenticate?raw=true", server.url);
  const answer = await fetch(login, { method: "POST", headers: { authorization: basic } });
  const authorization = `Bearer ${await answer.text()}`;
  return (await (await fetch(new URL(place, server.url), { headers: { authorization } })).json())
    .data;
}

const arrived = (place, number) =>
  eventually(async () => assert.equal((await api(place)).affected_items.length, number));

/** Returns the paths below a folder as a query. */
const below = (name) => new URLSearchParams({ path: at(name), limit: 1000 });

before(async () => {
  tree = await folder("tree");
  unpacking = await folder("unpacking");
  data = await folder("data");
  await mkdir(at("usr"));
  await mkdir(at("etc"));
  server = await up(data.path, tree.path, ["--scan-interval", "1s"]);
  await arrived(`/syscheck/001?${new URLSearchParams({ q: `file=${at("usr")}` })}`, 1);
  await writeFile(at("etc/planted"), "not by apt");
  await arrived(`/changes?kind=created&${below("etc/planted")}`, 1);
  // Written elsewhere and moved here: a file read while it is written would be changed twice.
  for (const name of ["bash", "dash"]) {
    const unpacked = path.join(unpacking.path, name);
    await mkdir(unpacked);
    for (let n = 0; n < FILES; n++) await writeFile(path.join(unpacked, `${n}`), `${name} ${n}`);
    await rename(unpacked, at(`usr/${name}`));
  }
  await arrived(`/changes?kind=created&${below("usr/")}`, CHANGES);
  assert.equal(await server.stop(), 0);
  const state = path.join(data.path, "state.db");
  const { stdout } = await promisify(execFile)("python3", [EXPLAIN, state, at("usr/")]);
  assert.equal(Number(stdout), CHANGES);
  server = await up(data.path, tree.path);
  browser = await launch();
  view = await tab(browser, server.url, { colorScheme: "light" });
  page = view.page;
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto("/");
  await page.getByLabel("User").fill(USER);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Fleet" }).waitFor();
});

after(async () => {
  await browser?.close();
  server?.kill();
  await tree?.remove();
  await unpacking?.remove();
  await data?.remove();
});

const open = (place) => page.evaluate((to) => void (location.hash = to), place);

const toggle = () => page.getByRole("button", { name: LINE });

const row = (name) =>
  page.locator("tr.row").filter({ has: page.locator(`a.row-link[title="${at(name)}"]`) });

const members = () => page.locator("tr.member");

const hasMembers = (number) =>
  eventually(async () => assert.equal(await members().count(), number));

const test = inOrder();

describe("causes of changes", { concurrency: false }, () => {
  test("the overview lists unexplained changes first", async () => {
    await toggle().waitFor();
    await page.getByRole("link", { name: /^[1-9]\d* unexplained$/ }).waitFor();
    const causes = await page.locator("tr.row .c-cause").allInnerTexts();
    const first = causes.findIndex((cause) => cause !== "unexplained");
    assert.ok(first > 0 && causes.slice(first).every((cause) => cause === "package"), causes);
    await row("etc/planted").first().getByText("unexplained", { exact: true }).waitFor();
    await picture(page, "fleet-causes-light");
  });

  test("an upgrade is one line that the keyboard opens and closes", async () => {
    await open(`#/changes?${new URLSearchParams({ path: at("usr/") })}`);
    await page.getByRole("heading", { level: 1, name: "Changes" }).waitFor();
    await toggle().waitFor();
    assert.equal(await toggle().getAttribute("aria-expanded"), "false");
    await page.getByText(`${CHANGES} changes on 1 line on this page`).waitFor();
    await tabTo(page, () => document.activeElement.matches("button.group-toggle"));
    await page.keyboard.press("Enter");
    await hasMembers(100);
    assert.equal(await toggle().getAttribute("aria-expanded"), "true");
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(() => document.activeElement.closest("tr").matches(".member"));
    await page.getByRole("button", { name: "Show more" }).press("Enter");
    await hasMembers(CHANGES);
    const titles = await members()
      .locator("a.row-link")
      .evaluateAll((links) => links.map((link) => link.title));
    assert.equal(new Set(titles).size, CHANGES, "each change once");
    await members().first().getByText(/^package: apt, [bd]ash 5\.1 → 5\.2$/).waitFor();
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 800 });
      await picture(page, `changes-opened-light-${width}`);
      await eventually(async () => {
        assert.deepEqual(await page.evaluate(faint), []);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${wide} wide`);
      });
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    await toggle().press("Space");
    await hasMembers(0);
  });

  test("the history narrows by cause", async () => {
    await open("#/changes");
    await toggle().waitFor();
    const cause = page.getByRole("group", { name: "Cause" });
    await cause.getByRole("button", { name: "unexplained" }).click();
    await toggle().waitFor({ state: "detached" });
    await row("etc/planted").first().waitFor();
    await cause.getByRole("button", { name: "unexplained" }).click();
    await cause.getByRole("button", { name: "package" }).click();
    await toggle().waitFor();
    assert.equal(await row("etc/planted").count(), 0);
    await page.getByRole("link", { name: "Clear" }).click();
    await row("etc/planted").first().waitFor();
  });

  test("a change shows its cause and leads to all changes of it", async () => {
    await toggle().click();
    await row("usr/dash/7").locator("a.row-link").click();
    const facts = page.locator(".of-cause");
    for (const said of ["package", "apt", "dash 5.1 → 5.2", "matches the package"]) {
      await facts.getByText(said, { exact: true }).waitFor();
    }
    await facts.getByText("a process of the tool").waitFor();
    await picture(page, "change-cause-light");
    await facts.getByRole("link", { name: "All changes of this cause" }).click();
    await page.getByText("100 changes on this page").waitFor();
    assert.equal(await toggle().count(), 0);
    await page.getByRole("link", { name: "Older" }).click();
    await page.getByText(`${CHANGES - 100} changes on this page`).waitFor();
    assert.deepEqual(view.complaints, []);
  });
});
