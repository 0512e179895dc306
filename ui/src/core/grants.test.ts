import { expect, test } from "vitest";
import { may } from "./grants";

const agent = { id: "001", group: ["web"] };
const run = (resources: Record<string, "allow" | "deny">, mode = "white") =>
  may({ rbac_mode: mode, "syscheck:run": resources }, "syscheck:run", agent);

test("a right on the agent, its group or every agent permits the action", () => {
  expect(run({ "agent:id:001": "allow" })).toBe(true);
  expect(run({ "agent:group:web": "allow" })).toBe(true);
  expect(run({ "agent:id:*": "allow" })).toBe(true);
  expect(run({ "agent:id:002": "allow" })).toBe(false);
  expect(may({ rbac_mode: "white" }, "syscheck:run", agent)).toBe(false);
  expect(may({ rbac_mode: "black" }, "syscheck:run", agent)).toBe(true);
});

test("the more specific resource decides", () => {
  expect(run({ "agent:id:*": "allow", "agent:id:001": "deny" })).toBe(false);
  expect(run({ "agent:id:*": "deny", "agent:id:001": "allow" })).toBe(true);
  expect(run({ "agent:group:web": "deny" }, "black")).toBe(false);
});
