// The watched paths of an agent: how each is watched now, why, and what would improve it.

import type { Watched, WatchedRoot } from "../api/types";
import { Shape } from "./marks";
import { Safe } from "./text";

const WORD = { realtime: "Realtime", scan: "By scans", gap: "Not watched" };
const SHAPE = { realtime: "active", scan: "calm", gap: "gap" };

function Root({ found }: { found: WatchedRoot }) {
  const why = [found.reason, found.remedy].filter((text) => text).join("; ");
  const how = [found.method, found.file_system].filter((text) => text).join("; ");
  return (
    <li class="gap">
      <span class={found.state === "gap" ? "tone-gap" : "tone-calm"}>
        <Shape kind={SHAPE[found.state]} />
      </span>
      <div class="gap-body">
        <p>
          <strong>{WORD[found.state]}</strong>{" "}
          <span class="path">
            <Safe text={found.path} />
          </span>
        </p>
        {why ? (
          <p class="quiet">
            <Safe text={why} />
          </p>
        ) : null}
      </div>
      <p class="gap-when quiet">
        <Safe text={how} />
      </p>
    </li>
  );
}

export function WatchedPaths({ watched }: { watched: Watched }) {
  return (
    <>
      <ol class="gaps watched" aria-label="Watched paths">
        {watched.roots.map((found) => (
          <Root key={`${found.root} ${found.path}`} found={found} />
        ))}
      </ol>
      {watched.more > 0 ? <p class="quiet">{watched.more} more are not listed.</p> : null}
      {watched.attribution_reason ? (
        <p class="quiet">
          Who changed what: {watched.attribution ? "reported, but " : "not reported: "}
          <Safe text={watched.attribution_reason} />
        </p>
      ) : null}
    </>
  );
}
