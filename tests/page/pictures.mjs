// Takes the screenshots of the documents: `cargo xtask pictures`.

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { choosing, fixture, launch, withPage } from "./harness.mjs";
import { rest, screens, shownFiles } from "./screens.mjs";

const target = process.argv[2];
mkdirSync(target, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), "statelens-pictures-"));
const files = shownFiles(folder);
const { model, later } = files;
/** Screens that are also shown at the size of a phone. */
const SMALL = ["workspace", "inspector", "scanned", "findings", "expanded", "treemap", "convert", "compare", "run"];
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
      await page.locator('#work .row[data-key$="wte.weight"]').first().click();
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
      await chooser.setFiles(later);
      await page.waitForSelector("#save-report:not([disabled])");
      await page.locator('#compare .row[data-key*="down_proj"]').first().click();
      await take(page, "compare");
    },
    { colorScheme, viewport: { width: 1440, height: 900 } },
  );
  const screen = (width, names) => async (page) => {
    await screens(page, files, async (name) => {
      if (!names.includes(name)) return;
      await rest(page);
      // Waits for values that are still being read.
      await page.waitForTimeout(600);
      await page.screenshot({ path: join(target, `${name}-${width}${colorScheme}.png`) });
    });
  };
  await withPage(browser, screen("", ["findings", "run"]), { colorScheme, viewport: { width: 1440, height: 900 } });
  await withPage(browser, screen("390-", SMALL), { colorScheme, viewport: { width: 390, height: 844 } });
}
await browser.close();
rmSync(folder, { recursive: true });
