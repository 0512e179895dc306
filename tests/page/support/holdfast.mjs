// The real program: `holdfast up` on a temporary tree and data folder.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
export const USER = "admin";
export const PASSWORD = "Correct-Horse-4";

export const BINARY = process.env.HOLDFAST_BIN ?? path.join(ROOT, "target/debug/holdfast");
/** Time limit for anything that must happen, on a busy machine. */
export const PATIENCE_MS = 180_000;

/** Repeats the assertions until they pass. */
export async function eventually(asserted) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await asserted();
    } catch (wrong) {
      if (!(wrong instanceof assert.AssertionError) || Date.now() > end) throw wrong;
    }
    await new Promise((again) => setTimeout(again, 50));
  }
}

/**
 * Returns a `test` for tests that continue where the one before ended. After a failure the others
 * are skipped at once, because each of them would wait in vain for what it expects on the page.
 */
export function inOrder() {
  let failed;
  return (name, run) =>
    test(name, async (context) => {
      if (failed !== undefined) return context.skip(`"${failed}" failed`);
      try {
        await run(context);
      } catch (error) {
        failed = name;
        throw error;
      }
    });
}

/** Creates a folder that is deleted when the test ends. */
export async function folder(name) {
  const made = await mkdtemp(path.join(tmpdir(), `holdfast-${name}-`));
  return { path: made, remove: () => rm(made, { recursive: true, force: true }) };
}

const within = (ms, what, promise) => {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`${what} took longer than ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

/** Starts the program and waits for `ready: URL`. */
export async function up(data, tree, more = []) {
  if (!existsSync(BINARY)) {
    throw new Error(`${BINARY} is not there: build it, or name another with HOLDFAST_BIN`);
  }
  const ports = ["resp", "udp", "opentsdb", "http"].flatMap((port) => [`--${port}`, "off"]);
  const own = more.includes("--scan-interval") ? [] : ["--scan-interval", "1h"];
  const flags = ["--api", "127.0.0.1:0", "--plain-http", ...own, ...more, ...ports];
  const child = spawn(BINARY, ["up", "--data", data, "--watch", tree, ...flags], {
    env: { ...process.env, HOLDFAST_ADMIN_PASSWORD: PASSWORD },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = [];
  const exit = once(child, "exit");
  child.stderr.setEncoding("utf8").on("data", (text) => said.push(text));
  const ready = new Promise((resolve, fail) => {
    readline.createInterface({ input: child.stdout }).on("line", (line) => {
      said.push(`${line}\n`);
      const url = /^ready: (\S+)/.exec(line)?.[1];
      if (url) resolve(url);
    });
    child.on("error", fail);
    exit.then(([code]) => fail(new Error(`it ended with ${code}`)));
  });
  const tell = (error) => {
    throw new Error(`holdfast up: ${error.message}\n${said.join("")}`);
  };
  const kill = () => child.exitCode === null && child.kill("SIGKILL");
  try {
    const url = await within(PATIENCE_MS, "its start", ready);
    return {
      url,
      output: () => said.join(""),
      kill,
      /** Sends SIGINT, as Ctrl-C does. Returns the exit code. */
      async stop() {
        child.kill("SIGINT");
        const [code] = await within(PATIENCE_MS, "its stop", exit).catch(tell);
        return code;
      },
    };
  } catch (error) {
    kill();
    return tell(error);
  }
}
