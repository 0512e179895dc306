// Writes a copy of each built file for browsers that accept Brotli; the server sends it as it is.
// Argument: the folder, else dist.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync } from "node:zlib";

// A smaller file fits into a packet anyway.
const BYTES_MIN = 1024;

const folder = process.argv[2] ?? "dist";
for (const file of readdirSync(folder, { recursive: true })) {
  if (!/\.(css|html|js|svg)$/.test(file)) continue;
  const whole = readFileSync(`${folder}/${file}`);
  if (whole.length >= BYTES_MIN) writeFileSync(`${folder}/${file}.br`, brotliCompressSync(whole));
}
