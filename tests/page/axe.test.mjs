// What axe finds on every screen, light and dark: nothing serious.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { choosing, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** Collects what is serious, and what breaks the rules that the screens broke before. */
async function look(page, what, found) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": { enabled: true } } }),
  );
  const named = ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"];
  const bad = violations.filter(({ id, impact }) => ["serious", "critical"].includes(impact) || named.includes(id));
  const told = bad.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`);
  found.push(...told.map((text) => `${what}: ${text}`));
}

async function open(page, name) {
  await page.setInputFiles("#choose-files", fixture(name));
  await page.waitForSelector("#work .row");
}

for (const colorScheme of ["light", "dark"]) {
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ]) {
    test(`every screen at ${width}, ${colorScheme}`, async () => {
      await withPage(
        browser,
        async (page) => {
          const found = [];
          const sound = (page, what) => look(page, what, found);
          await sound(page, "start");
          await open(page, "cerebras/v2.10.0/gpt_small.mdl");
          await sound(page, "workspace");
          await page.keyboard.press("j");
          await page.waitForSelector(".row.sel");
          await sound(page, "a row");
          for (const key of ["c", "f", "s", "v", "?", "u"]) {
            await page.keyboard.press(key);
            await page.waitForSelector('[role="dialog"]');
            await page.waitForTimeout(150);
            await sound(page, `sheet ${key}`);
            await page.keyboard.press("Escape");
            await page.waitForSelector('[role="dialog"]', { state: "detached" });
          }
          await page.keyboard.press("/");
          await page.keyboard.type("nothing_like_it");
          await page.waitForSelector(".empty");
          await sound(page, "nothing found");
          await page.keyboard.press("Escape");
          const chooser = await choosing(page, () => page.keyboard.press("d"));
          await chooser.setFiles(fixture("cerebras/v2.10.0/seed.mdl"));
          await page.waitForSelector("#save-report:not([disabled])");
          await sound(page, "compare");
          await drop(page, "body", [{ name: "x.pt", bytes: "nothing" }]);
          await page.waitForSelector("#error");
          await sound(page, "error");
          await drop(page, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl"), dropped("cerebras/v2.10.0/seed.mdl")].map((file, at) => ({ ...file, name: `run/checkpoint_${at + 1}00.mdl` })));
          await page.waitForTimeout(300);
          await sound(page, "several");
          assert.deepEqual(found, []);
        },
        { colorScheme, viewport: { width, height } },
      );
    });
  }
}
