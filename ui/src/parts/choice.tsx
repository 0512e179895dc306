// A labelled list of choices.

import type { TargetedEvent } from "preact";
import { useId } from "preact/hooks";

export type Choices = [value: string, label: string][];

interface Props {
  label: string;
  value: string;
  of: Choices;
  choose: (value: string) => void;
}

export function Choice({ label, value, of, choose }: Props) {
  const id = useId();
  const chosen = (event: TargetedEvent<HTMLSelectElement>) => choose(event.currentTarget.value);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={chosen}>
        {of.map(([name, said]) => (
          <option key={name} value={name}>
            {said}
          </option>
        ))}
      </select>
    </div>
  );
}
