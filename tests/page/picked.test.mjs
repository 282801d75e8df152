// Actions on several picked keys.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { choosing, drop, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const values = { "a.weight": [[1, 2], [3, 4]], "b.weight": [[1, 2], [3, 4.5]], "c.bias": [7, 8, 9] };

/** Opens the file and picks keys. */
async function pick(page, keys) {
  await drop(page, "body", [{ name: "model.safetensors", bytes: floats(values) }]);
  await page.waitForSelector("#work .row");
  for (const key of keys) await page.locator(`#work .row[data-key*="${key}"]`).click({ modifiers: ["ControlOrMeta"] });
  await page.waitForSelector("#picked");
}

test("two picked tensors are compared with each other (core)", () =>
  withPage(browser, async (page) => {
    await pick(page, ["a.weight", "b.weight"]);
    await page.click("#compare-picked");
    await page.waitForSelector("#save-report:not([disabled])");
    assert.equal(await page.locator("#compare .row").count(), 1);
    assert.deepEqual(await page.locator("#compare .ab .name").allTextContents(), ["a.weight", "b.weight"]);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-report")]);
    const { matches, differences } = JSON.parse(readFileSync(await download.path(), "utf8"));
    assert.equal(matches, false);
    assert.deepEqual([differences.length, differences[0].what, differences[0].differing], [1, "elements", 1]);
    // Swaps the sides, then returns to the keys.
    await page.keyboard.press("x");
    await page.waitForSelector('#compare [data-side="A"][title="b.weight"]');
    await page.waitForSelector("#save-report:not([disabled])");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#work #picked");
  }));

test("tensors of different shapes differ by their shape", () =>
  withPage(browser, async (page) => {
    await pick(page, ["a.weight", "c.bias"]);
    await page.click("#compare-picked");
    await page.waitForSelector("#save-report:not([disabled])");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-report")]);
    const { differences } = JSON.parse(readFileSync(await download.path(), "utf8"));
    assert.deepEqual(differences.map(({ what }) => what), ["shape"]);
  }));

test("three picked keys can be compared with another file only", () =>
  withPage(browser, async (page) => {
    await pick(page, ["a.weight", "b.weight", "c.bias"]);
    assert.equal(await page.isDisabled("#compare-picked"), true);
    const chooser = await choosing(page, () => page.click("#compare-other"));
    await chooser.setFiles({ name: "other.safetensors", mimeType: "", buffer: floats(values) });
    await page.waitForSelector("#compare #verdict");
  }));
