import { describe, expect, test } from "vitest";
import { ago, bytes, exact, growth, permissions, pieces, plain, span, split, word } from "./format";

describe("sizes", () => {
  test("small sizes stay exact, large ones get a unit", () => {
    expect([0, 1432, 10_239, 10_240, 48_211_232, 250 * 1024 ** 3].map(bytes)).toEqual([
      "0 B",
      "1,432 B",
      "10,239 B",
      "10.0 KiB",
      "46.0 MiB",
      "250 GiB",
    ]);
  });

  test("growth has a sign, and nothing to say of equal sizes", () => {
    expect([growth(10, 78), growth(78, 10), growth(5, 5)]).toEqual(["+68 B", "−68 B", ""]);
  });
});

describe("permissions", () => {
  test("are written as ls writes them", () => {
    expect(["0644", "0000", "0777"].map(permissions)).toEqual([
      "rw-r--r--",
      "---------",
      "rwxrwxrwx",
    ]);
  });

  test("special bits are capital without execute permission", () => {
    expect(["4755", "4644", "2755", "2644", "1777", "1666"].map(permissions)).toEqual([
      "rwsr-xr-x",
      "rwSr--r--",
      "rwxr-sr-x",
      "rw-r-Sr--",
      "rwxrwxrwt",
      "rw-rw-rwT",
    ]);
  });

  test("what is no mode has none", () => {
    expect(["", "0888", "rw-r--r--"].map(permissions)).toEqual(["", "", ""]);
  });
});

describe("times", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");

  test("are relative to now, and a clock ahead of ours is now", () => {
    const at = ["2026-11-21T12:00:09Z", "2026-11-21T11:59:15Z", "2026-11-18T11:00:00Z", "soon"];
    expect(at.map((t) => ago(t, now))).toEqual(["just now", "45 s ago", "3 d ago", "soon"]);
  });

  test("keep every digit the file system counted", () => {
    expect(exact("2026-11-20T09:12:44.123456789Z")).toMatch(/:12:44\.123456789(Z|[+-]\d\d:\d\d)$/);
    expect(exact("2026-11-20T09:12:44.500000000Z")).toMatch(/:12:44\.5(Z|[+-]\d\d:\d\d)$/);
    expect(exact("2026-11-20T09:12:44Z")).toMatch(/:12:44(Z|[+-]\d\d:\d\d)$/);
  });

  test("lengths have their largest unit", () => {
    expect([0, 59_000, 60_000, 7_199_000, 90_000_000].map(span)).toEqual([
      "0 s",
      "59 s",
      "1 min",
      "1 h",
      "1 d",
    ]);
  });
});

describe("hostile names", () => {
  test("what would hide or turn the text is written out", () => {
    expect(plain("a\u202egnp.sh\n\x1b[2J\u200b")).toBe("a\\u{202e}gnp.sh\\n\\u{1b}[2J\\u{200b}");
    expect(pieces("a\nb")).toEqual([
      { text: "a", escaped: false },
      { text: "\\n", escaped: true },
      { text: "b", escaped: false },
    ]);
  });

  test("other scripts stay as they are", () => {
    expect(plain("grün 東京 <b>&amp;")).toBe("grün 東京 <b>&amp;");
    expect(plain("")).toBe("");
  });
});

test("a path falls into its folder and its name", () => {
  expect(["/etc/passwd", "/etc", "/", "name", "/etc/"].map(split)).toEqual([
    ["/etc/", "passwd"],
    ["/", "etc"],
    ["", "/"],
    ["", "name"],
    ["", "/etc/"],
  ]);
});

test("words of the API are said as people say them", () => {
  expect(["dir", "never_connected", "file", "agent_down"].map(word)).toEqual([
    "directory",
    "never connected",
    "file",
    "agent down",
  ]);
});
