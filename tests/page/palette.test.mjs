// The palette: one field over all actions and keys.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, drop, dropped, launch, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const shown = (page) => page.$$eval("#palette li .cut", (entries) => entries.map((entry) => entry.textContent));

test("Ctrl+K finds an action or a key, and runs it (core)", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl")]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("Control+k");
    await page.waitForSelector("#palette li");
    await page.keyboard.type("bf16");
    await becomes(() => shown(page), ["Convert to weights only, bf16"]);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#convert");
    // The states of the format itself always stay.
    await becomes(() => page.locator("#convert .states input:checked").count(), 2);
    assert.ok(await page.locator("#convert .states input:not(:checked)").count() > 0);
    await page.keyboard.press("Escape");
    // A key, by the beginnings of its parts.
    await page.keyboard.press("Control+k");
    await page.keyboard.type("model wte");
    await page.waitForSelector("#palette li .m");
    const key = (await shown(page))[0];
    await page.keyboard.press("Enter");
    await page.waitForSelector("#palette", { state: "detached" });
    await page.waitForSelector(`#work .row.sel[data-key="${key}"]`);
    // Escape closes it.
    await page.keyboard.press("Control+k");
    await page.waitForSelector("#palette");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#palette", { state: "detached" });
    assert.equal(await page.locator("#work").count(), 1);
  });
});

test("on the first screen, Ctrl+K has the actions that need no checkpoint", async () => {
  await withPage(browser, async (page) => {
    await page.keyboard.press("Control+k");
    await page.waitForSelector("#palette li");
    assert.deepEqual(await shown(page), ["Open files", "Open folder", "Open URL", "Shortcuts"]);
    await page.keyboard.type("url");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#address");
  });
});
