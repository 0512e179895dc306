import { expect, test } from "vitest";
import { title, urgent } from "./gap";

const gap = (id: string, kind: string, to: string | null) => ({ id, kind, to });

test("copied identities come first, then open gaps, each once", () => {
  const ended = gap("1", "agent_down", "2026-01-01T00:00:00Z");
  const open = gap("2", "agent_silent", null);
  const cloned = gap("3", "identity_cloned", "2026-01-01T00:00:00Z");
  expect(urgent([open, ended, open, cloned]).map(({ id }) => id)).toEqual(["3", "2", "1"]);
});

test("a kind that the page does not know is shown as its word", () => {
  expect(title("moon_phase")).toBe("moon phase");
});
