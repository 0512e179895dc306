// Why a change happened, in words. Pure functions.

import type { Cause, Change } from "../api/types";
import { plural } from "./format";

/** The package with its versions: `bash 5.1 → 5.2`. */
export function packageText(cause: Cause | undefined): string {
  const named = cause?.package;
  if (named === undefined) return "";
  const { name, version = "", previous_version: previous = "" } = named;
  if (version === "") return `${name} removed`;
  return previous === "" || previous === version
    ? `${name} ${version}`
    : `${name} ${previous} → ${version}`;
}

/** The kind of the cause, then its tool and package: `package: apt, bash 5.1 → 5.2`. */
export function causeText(cause: Cause | undefined): string {
  if (cause === undefined || cause.kind === "unexplained") return "unexplained";
  const said = [cause.tool ?? "", packageText(cause)].filter((text) => text !== "");
  const attention = cause.attention ? "needs attention, " : "";
  const kind = `${attention}${cause.kind}`;
  return said.length === 0 ? kind : `${kind}: ${said.join(", ")}`;
}

/** What a collapsed line stands for: `apt: 6 packages, 214 changes`; empty for a single change. */
export function collapsedText({ cause, collapsed }: Pick<Change, "cause" | "collapsed">): string {
  if (collapsed === undefined) return "";
  const changes = plural(collapsed.changes, "change");
  const packages = collapsed.packages ? `${plural(collapsed.packages, "package")}, ` : "";
  return `${cause?.tool || cause?.kind || "cause"}: ${packages}${changes}`;
}
