import { expect, test } from "vitest";
import type { Cause } from "../api/types";
import { causeText, collapsedText, packageText } from "./cause";

const apt: Cause = {
  kind: "package",
  tool: "apt",
  id: "apt-1",
  package: { name: "bash", version: "5.2", previous_version: "5.1" },
};

test("a cause names its kind, tool and package with both versions", () => {
  expect(causeText(apt)).toBe("package: apt, bash 5.1 → 5.2");
  expect(causeText({ kind: "deployment", tool: "ansible" })).toBe("deployment: ansible");
  expect(causeText({ kind: "deployment" })).toBe("deployment");
  expect(causeText({ kind: "unexplained", detail: "another writer" })).toBe("unexplained");
  expect(causeText(undefined)).toBe("unexplained");
  expect(causeText({ kind: "deployment", tool: "dpkg", attention: true })).toBe(
    "needs attention, deployment: dpkg",
  );
});

test("a package that was installed or removed has one version or none", () => {
  expect(packageText({ ...apt, package: { name: "bash", version: "5.2" } })).toBe("bash 5.2");
  expect(packageText({ ...apt, package: { name: "bash", previous_version: "5.1" } })).toBe(
    "bash removed",
  );
});

test("a collapsed line counts packages and changes", () => {
  const line = (changes: number, packages?: number) =>
    collapsedText({ cause: apt, collapsed: { changes, ...(packages ? { packages } : {}) } });
  expect(line(1214, 6)).toBe("apt: 6 packages, 1,214 changes");
  expect(line(2, 1)).toBe("apt: 1 package, 2 changes");
  expect(line(3)).toBe("apt: 3 changes");
  expect(collapsedText({ cause: apt })).toBe("");
});
