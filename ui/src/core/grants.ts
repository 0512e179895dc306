// Permissions of the logged-in user, for controls that a refusal would follow. The server decides.

import type { Agent, Grants } from "../api/types";

/** True if the effects permit the action on the agent: the most specific resource decides. */
export function may(grants: Grants, action: string, agent: Agent): boolean {
  const effects = grants[action];
  const open = grants["rbac_mode"] === "black";
  if (typeof effects !== "object") return open;
  const groups = (agent.group ?? []).map((group) => effects[`agent:group:${group}`]);
  const levels = [
    [effects[`agent:id:${agent.id}`]],
    groups,
    [effects["agent:group:*"], effects["agent:id:*"], effects["*:*:*"]],
  ];
  for (const level of levels) {
    if (level.includes("deny")) return false;
    if (level.includes("allow")) return true;
  }
  return open;
}
