// Why a change happened: one line in lists, and the facts on the change's page.

import type { Change } from "../api/types";
import { causeText, packageText } from "../core/cause";
import { place } from "../core/route";
import { Safe } from "./text";

/** The cause of a change in one line. */
export function Cause({ change }: { change: Change }) {
  const { kind = "unexplained", detail = "", attention = false } = change.cause ?? {};
  const explained = kind !== "unexplained" && !attention;
  return (
    <>
      <span class={explained ? "cause" : "cause unexplained"}>
        <Safe text={causeText(change.cause)} />
      </span>
      {explained || detail === "" ? null : (
        <div class="note">
          <Safe text={detail} />
        </div>
      )}
    </>
  );
}

/** The kind, tool and package of the cause, what matched, and the other changes of it. */
export function CauseFacts({ change }: { change: Change }) {
  const cause = change.cause ?? { kind: "unexplained" };
  // An unexplained change may have a likely package: then it says what did not match.
  const likely = cause.kind !== "unexplained" || cause.package !== undefined;
  const others = { cause_id: cause.id ?? "", agent: change.agent.id };
  const fact = (label: string, text: string | undefined) =>
    text ? (
      <div>
        <dt>{label}</dt>
        <dd>
          <Safe text={text} />
        </dd>
      </div>
    ) : null;
  return (
    <section aria-labelledby="cause">
      <h2 id="cause">Why it changed</h2>
      <dl class="facts card of-cause">
        {fact("Cause", cause.kind)}
        {cause.attention ? fact("Attention", "it decides who may log in, or what runs") : null}
        {fact("Explanation", cause.detail)}
        {fact("Tool", cause.tool)}
        {fact("Package", packageText(cause))}
        {cause.package !== undefined
          ? fact("Content", cause.content_matches ? "matches the package" : "does not match")
          : null}
        {likely
          ? fact(
              "Writer",
              cause.writer_matches ? "a process of the tool" : "not known to be the tool",
            )
          : null}
        {cause.id ? (
          <div>
            <dt>Together with</dt>
            <dd>
              <a href={place(["changes"], others)}>All changes of this cause</a>
            </dd>
          </div>
        ) : null}
      </dl>
    </section>
  );
}
