// Values as people read them. Pure functions.

const COUNT = new Intl.NumberFormat("en");

export const count = (n: number): string => COUNT.format(n);

export const plural = (n: number, one: string, many = `${one}s`): string =>
  `${count(n)} ${n === 1 ? one : many}`;

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes, in units of 1,024 with three significant digits at least: `1,432 B`, `12.4 MiB`. */
export function bytes(n: number): string {
  if (n < 10_240) return `${count(n)} B`;
  let value = n;
  let unit = "B";
  for (const next of UNITS) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return `${value < 100 ? value.toFixed(1) : count(Math.round(value))} ${unit}`;
}

/** `+68 B`, `−1.2 MiB`; empty when nothing grew or shrank. */
export function growth(before: number, after: number): string {
  if (before === after) return "";
  return `${after > before ? "+" : "−"}${bytes(Math.abs(after - before))}`;
}

const BITS = "rwxrwxrwx";

/** Octal permission bits as `ls` writes them: `4755` is `rwsr-xr-x`. */
export function permissions(octal: string): string {
  const mode = Number.parseInt(octal, 8);
  if (!/^[0-7]{1,5}$/.test(octal) || Number.isNaN(mode)) return "";
  const out = [...BITS].map((letter, i) => ((mode >> (8 - i)) & 1 ? letter : "-"));
  const special = (bit: number, at: number, set: string) => {
    if (mode & bit) out[at] = out[at] === "x" ? set : set.toUpperCase();
  };
  special(0o4000, 2, "s");
  special(0o2000, 5, "s");
  special(0o1000, 8, "t");
  return out.join("");
}

const two = (n: number) => String(n).padStart(2, "0");

/** Milliseconds since the epoch of an RFC 3339 time; NaN when it is none. */
export const instant = (time: string | undefined): number => (time ? Date.parse(time) : Number.NaN);

/** Offset of local time from UTC at a date: `Z` or `+01:00`. */
function offset(d: Date): string {
  const minutes = -d.getTimezoneOffset();
  if (minutes === 0) return "Z";
  const whole = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(whole / 60))}:${two(whole % 60)}`;
}

function local(time: string, fraction: string): string {
  const ms = instant(time);
  if (Number.isNaN(ms)) return time;
  const d = new Date(ms);
  const date = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  const clock = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return `${date} ${clock}${fraction}${offset(d)}`;
}

/** Local date and time to the second, with the offset; the text itself when it is no time. */
export const moment = (time: string): string => local(time, "");

/** `moment` with every digit of the second that the text has: file times count nanoseconds. */
export function exact(time: string): string {
  const fraction = /\.(\d+)/.exec(time)?.[1]?.replace(/0+$/, "") ?? "";
  return local(time, fraction === "" ? "" : `.${fraction}`);
}

const STEPS: [seconds: number, unit: string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A length of time in its largest unit: `45 s`, `3 min`, `26 d`. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [step, unit] = STEPS.find(([s]) => seconds >= s) ?? [1, "s"];
  return `${count(Math.floor(seconds / step))} ${unit}`;
}

/** `just now`, `3 min ago`; a clock ahead of ours is `just now` too. */
export function ago(time: string, now: number): string {
  const ms = instant(time);
  if (Number.isNaN(ms)) return time;
  return now - ms < 5000 ? "just now" : `${span(now - ms)} ago`;
}

export interface Piece {
  text: string;
  /** Stands for characters that would be invisible, or would reorder the text around them. */
  escaped: boolean;
}

// Control and format characters, line separators, and everything that turns text around.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]+/gu;

const code = (c: string) => {
  const known: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  return known[c] ?? `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`;
};

/** A name as it can be shown safely: what cannot be seen is written out and marked. */
export function pieces(name: string): Piece[] {
  const out: Piece[] = [];
  let at = 0;
  for (const found of name.matchAll(HIDDEN)) {
    if (found.index > at) out.push({ text: name.slice(at, found.index), escaped: false });
    out.push({ text: [...found[0]].map(code).join(""), escaped: true });
    at = found.index + found[0].length;
  }
  if (at < name.length || out.length === 0) out.push({ text: name.slice(at), escaped: false });
  return out;
}

/** `pieces` as one text, for titles and labels. */
export const plain = (name: string): string =>
  pieces(name)
    .map((p) => p.text)
    .join("");

/** Folder (with its slash) and last part. */
export function split(path: string): [folder: string, name: string] {
  const at = path.lastIndexOf("/");
  return at < 0 || at === path.length - 1
    ? ["", path]
    : [path.slice(0, at + 1), path.slice(at + 1)];
}

const WORDS: Record<string, string> = {
  dir: "directory",
  symlink: "symbolic link",
  fifo: "named pipe",
  block_device: "block device",
  char_device: "character device",
  never_connected: "never connected",
};

/** The API's word as people say it. */
export const word = (name: string): string => WORDS[name] ?? name.replaceAll("_", " ");
