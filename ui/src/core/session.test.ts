import { describe, expect, it } from "vitest";
import { isDue } from "./session";

const token = (claims: object) =>
  `x.${btoa(JSON.stringify(claims)).replaceAll("+", "-").replaceAll("/", "_")}.y`;

describe("a token is renewed", () => {
  it("in the second half of its life", () => {
    const held = token({ nbf: 1000, exp: 1900, sub: "admin>>>???" });
    expect(isDue(held, 400)).toBe(false);
    expect(isDue(held, 451)).toBe(true);
  });

  it("never when it does not say when it ends", () => {
    for (const odd of ["", "a.b.c", token({}), token({ nbf: "1", exp: 2 })]) {
      expect(isDue(odd, 1e12)).toBe(false);
    }
  });
});
