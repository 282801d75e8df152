// The pictures of the documents, taken from the page as it is: `cargo xtask pictures`.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { choosing, command, fixture, launch, withPage } from "./harness.mjs";
import { trainedCheckpoint } from "./make.mjs";

const target = process.argv[2];
mkdirSync(target, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), "statelens-pictures-"));
const model = join(folder, "llama-tiny.safetensors");
trainedCheckpoint(model);
const smaller = join(folder, "llama-tiny-bf16.safetensors");
execFileSync(command, ["convert", model, smaller, "--cast", "bfloat16", "--cast", "*norm*=float32"]);
const browser = await launch();
for (const colorScheme of ["light", "dark"]) {
  const take = async (page, name) => {
    await page.waitForTimeout(600);
    await page.screenshot({ path: join(target, `${name}-${colorScheme}.png`) });
  };
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
      await page.waitForSelector("#work .row");
      await page.locator("#work .row", { hasText: "wte.weight" }).first().click();
      await page.waitForSelector(".histogram");
      await take(page, "workspace");
      await page.keyboard.press("c");
      await page.waitForSelector(".plan:not(.late)");
      await take(page, "convert");
      await page.keyboard.press("Escape");
      await page.setInputFiles("#choose-files", model);
      await page.waitForFunction(() => document.title.startsWith("llama-tiny"));
      await page.click("#scan");
      await page.click(".notice");
      await page.click(".show-value");
      await page.waitForSelector(".vals .here");
      await page.waitForSelector(".histogram");
      await take(page, "values");
      await page.keyboard.press("t");
      await page.waitForSelector(".map .box");
      await take(page, "boxes");
      await page.keyboard.press("t");
      await page.keyboard.press("e");
      await page.waitForSelector(".outstanding, .exp .map");
      await take(page, "expanded");
      await page.keyboard.press("Escape");
      const chooser = await choosing(page, () => page.keyboard.press("d"));
      await chooser.setFiles(smaller);
      await page.waitForSelector("#save-report:not([disabled])");
      await page.locator("#compare .row", { hasText: "down_proj" }).first().click();
      await take(page, "compare");
    },
    { colorScheme, viewport: { width: 1440, height: 900 } },
  );
}
await browser.close();
rmSync(folder, { recursive: true });
