// A headless Chromium that records a page's console messages and requests.

import { mkdir } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";
import { PATIENCE_MS, ROOT } from "./holdfast.mjs";

const PICTURES = path.join(ROOT, "target/page-screenshots");
const OFFLINE = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: OFFLINE,
    timeout: PATIENCE_MS,
  });

/** Opens a tab whose errors and requests are recorded. */
export async function tab(browser, url, options = {}) {
  const context = await browser.newContext({ baseURL: url, ...options });
  const page = await context.newPage();
  const complaints = [];
  const requests = [];
  page.on("pageerror", (error) => complaints.push(`exception: ${error.message}`));
  page.on("dialog", (dialog) => {
    complaints.push(`dialogue: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") {
      complaints.push(`${message.text()} ${message.location().url}`);
    }
  });
  page.on("request", (request) => {
    const { pathname, search, origin } = new URL(request.url());
    requests.push({ method: request.method(), pathname, search, origin });
  });
  return { page, context, complaints, requests };
}

export async function picture(page, name) {
  await mkdir(PICTURES, { recursive: true });
  await page.screenshot({ path: path.join(PICTURES, `${name}.png`), fullPage: true });
}

/** Presses Tab until `test` accepts the focused element. Returns the number of presses. */
export async function tabTo(page, test, most = 60) {
  for (let pressed = 1; pressed <= most; pressed += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(test)) return pressed;
  }
  const at = await page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200));
  throw new Error(`${most} times Tab did not reach it; the focus is at ${at}`);
}

/**
 * Returns the texts whose contrast with their background is below WCAG AA: 4.5 to 1, or 3 to 1
 * for large text. Runs in the page.
 */
export function faint() {
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) => {
    const mix = (x, y) => x * top.a + y * (1 - top.a);
    return { r: mix(top.r, under.r), g: mix(top.g, under.g), b: mix(top.b, under.b), a: 1 };
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(rgba(getComputedStyle(at).backgroundColor));
      if (layers.at(-1).a === 1) break;
    }
    return layers.reduceRight((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => {
      const c = v / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const style = getComputedStyle(element);
    const off = element.closest(":disabled, [aria-disabled=true], noscript, option, script");
    if (node.data.trim() === "" || off || !element.checkVisibility()) continue;
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
    const behind = ground(element);
    const ink = rgba(style.color);
    const [a, b] = [over({ ...ink, a: ink.a * opacity }, behind), behind].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${node.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return found;
}
