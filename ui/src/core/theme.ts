// Light or dark: as the system says, unless the person chose.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "holdfast.theme";
const ORDER: Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(stored());

export function next(of: Theme): Theme {
  return ORDER[(ORDER.indexOf(of) + 1) % ORDER.length] ?? "system";
}

export function choose(value: Theme): void {
  theme.value = value;
  apply();
  try {
    if (value === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, value);
  } catch {
    // Not remembered; still applied.
  }
}

export function apply(): void {
  const root = document.documentElement;
  if (theme.value === "system") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme.value);
}
