// The examples of the first screen open in the screens that suit them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, launch, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("the example of a run opens its steps, and names the damaged one", async () => {
  await withPage(browser, async (page) => {
    await page.click('[data-name="example-run"]');
    await page.waitForSelector("#run .row");
    await page.waitForSelector("#read-run:not([disabled])", { state: "attached" });
    const rows = () => page.$$eval("#run .row", (rows) => rows.length);
    await becomes(rows, 6);
    await becomes(() => page.textContent("#open-step").then((text) => /2,500/.test(text)), true);
  });
});

test("the example of two revisions is compared at once", async () => {
  await withPage(browser, async (page) => {
    await page.click('[data-name="two revisions"]');
    await page.waitForSelector("#save-report:not([disabled])");
    assert.match(await page.textContent("#verdict"), /They differ\..*12 changed/s);
  });
});
