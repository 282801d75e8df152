// The pictures of the documents, taken from the page as it is: `cargo xtask pictures`.

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fixture, launch, withPage } from "./harness.mjs";
import { trainedCheckpoint } from "./make.mjs";

const target = process.argv[2];
mkdirSync(target, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), "statelens-pictures-"));
const model = join(folder, "llama-tiny.safetensors");
trainedCheckpoint(model);
const browser = await launch();
for (const colorScheme of ["light", "dark"]) {
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ]) {
    const way = width === 1440 ? colorScheme : `${colorScheme}-390`;
    const take = async (page, name) => {
      await page.waitForTimeout(600);
      await page.screenshot({ path: join(target, `${name}-${way}.png`) });
    };
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
        await page.waitForSelector("#work .row");
        await page.locator("#work .row", { hasText: "wte.weight" }).first().click();
        await page.waitForSelector(".vals");
        await take(page, "workspace");
        await page.keyboard.press("c");
        await page.waitForSelector(".plan:not(.late)");
        await take(page, "convert");
        await page.keyboard.press("Escape");
        await page.setInputFiles("#choose-files", model);
        await page.waitForFunction(() => document.title.startsWith("llama-tiny"));
        await page.click(width < 720 ? ".scan-small" : "#scan");
        await page.waitForSelector(".notice");
        await take(page, "values");
        await page.click(".notice");
        await page.waitForSelector(".finding, .found, svg.depth");
        await take(page, "findings");
        await page.click(".show-value");
        await page.waitForSelector(".vals .here");
        await page.waitForSelector(".histogram");
        await take(page, "value");
      },
      { colorScheme, viewport: { width, height } },
    );
  }
}
await browser.close();
rmSync(folder, { recursive: true });
