// Gaps in coverage: what was not watched, from when to when.

import type { Gap } from "../api/types";
import { instant, plural, span } from "../core/format";
import { calm, title } from "../core/gap";
import { place } from "../core/route";
import { agentName } from "./changes";
import { Shape } from "./marks";
import { Safe, Time } from "./text";

export function Gaps({ gaps, oneAgent = false }: { gaps: Gap[]; oneAgent?: boolean }) {
  return (
    <ol class="gaps">
      {gaps.map((gap) => (
        <li key={gap.id ?? `${gap.agent.id} ${gap.kind} ${gap.from} ${gap.path ?? ""}`} class="gap">
          <span class={calm(gap.kind) ? "tone-calm" : "tone-gap"}>
            <Shape kind={calm(gap.kind) ? "calm" : "gap"} />
          </span>
          <div class="gap-body">
            <p>
              <strong>{title(gap.kind)}</strong>
              {gap.path ? (
                <>
                  {" "}
                  <span class="path">
                    <Safe text={gap.path} />
                  </span>
                </>
              ) : null}
            </p>
            {gap.detail ? (
              <p class="quiet">
                <Safe text={gap.detail} />
              </p>
            ) : null}
          </div>
          <p class="gap-when">
            <When gap={gap} />
            <Found gap={gap} />
            {oneAgent ? null : (
              <>
                <span class="quiet"> · </span>
                <a href={place(["agents", gap.agent.id])}>
                  <Safe text={agentName(gap.agent)} />
                </a>
              </>
            )}
          </p>
        </li>
      ))}
    </ol>
  );
}

function Found({ gap: { kind, found } }: { gap: Gap }) {
  // The detail of an absence that the server noticed says how many changes arrived late.
  const counted = kind === "baseline" || kind === "agent_silent" || kind === "agent_stopped";
  if (found === undefined || counted) return null;
  return (
    <span class="quiet">
      {" · "}
      {found === 0 ? "nothing had changed" : `${plural(found, "change")} found afterwards`}
    </span>
  );
}

function When({ gap }: { gap: Gap }) {
  if (gap.to === null) {
    return (
      <>
        since <Time time={gap.from} />
        <span class="tone-gap"> · still open</span>
      </>
    );
  }
  const length = instant(gap.to) - instant(gap.from);
  return (
    <>
      <Time time={gap.from} />
      {length >= 1000 ? <span class="quiet"> for {span(length)}</span> : null}
    </>
  );
}
