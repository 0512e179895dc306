import { expect, test } from "vitest";
import { address, basic, errorOf, listOf } from "../api/client";
import { filterOf, parameters, universal } from "./filter";
import { parse, place } from "./route";

test("a place and its address are the same thing", () => {
  const path = "/etc/a b&c=d#e?f/%41/ü";
  const back = parse(place(["agents", "001", "file"], { path, search: "" }));
  expect(back.parts).toEqual(["agents", "001", "file"]);
  expect(back.query.get("path")).toBe(path);
  expect(back.query.has("search")).toBe(false);
  expect(parse(place(["changes", "001.9f/2c-4"])).parts).toEqual(["changes", "001.9f/2c-4"]);
});

test("an address that is no place is read without a fault", () => {
  expect(parse("#/%zz/x").parts).toEqual(["%zz", "x"]);
  expect(parse("").parts).toEqual([]);
});

test("empty parameters are not sent", () => {
  expect(address("/changes", { path: "/a b%", kind: "", limit: 5, cursor: undefined })).toBe(
    "/changes?path=%2Fa+b%25&limit=5",
  );
});

test("the start of a relative time is kept on later pages", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");
  const first = parameters(filterOf(new URLSearchParams("within=1h")), now);
  expect(first.from).toBe("2026-11-21T11:00:00.000Z");
  const later = new URLSearchParams({ within: "1h", since: first.from, cursor: "c" });
  expect(parameters(filterOf(later), now + 60_000)).toEqual({ ...first, cursor: "c" });
});

test("times between are sent as universal time, and what is none is not sent", () => {
  expect(universal("2026-11-21T12:00")).toBe(new Date("2026-11-21T12:00").toISOString());
  expect([universal(""), universal("never")]).toEqual(["", ""]);
});

test("a refusal carries detail, remedy and number", () => {
  const error = errorOf(400, { title: "Bad Request", detail: "d", remediation: "r", error: 1405 });
  expect(error).toMatchObject({ status: 400, detail: "d", remediation: "r", code: 1405 });
  expect(errorOf(502, "<html>").detail).toBe("the server answered with status 502");
});

test("a list is read with its cursor and its failures", () => {
  const error = { code: 1707, message: "m", remediation: "r" };
  const data = { affected_items: ["a"], total_affected_items: 7, next_cursor: "c" };
  expect(listOf({ data: { ...data, failed_items: [{ error, id: ["003"] }] } })).toEqual({
    items: ["a"],
    total: 7,
    cursor: "c",
    newest: null,
    message: "",
    failed: [{ ...error, ids: ["003"] }],
  });
  expect(listOf({ data: { ...data, next_cursor: null } }).cursor).toBeNull();
});

test("names and passwords of any script reach the server", () => {
  expect(basic("admin", "pä€:x")).toBe("Basic YWRtaW46cMOk4oKsOng=");
});
