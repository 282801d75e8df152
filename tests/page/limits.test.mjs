// Files that are far more than they seem: the page asks before it goes through them, and what is over
// a limit can be opened all the same.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { drop, dropped, launch, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("what is over a limit is opened with higher ones when that is asked for", async () => {
  // Lists in lists, 1,500 deep, with a number in the innermost.
  const deep = Buffer.concat([Buffer.from([0x80, 2]), Buffer.alloc(1500, "]"), Buffer.from("K\x07"), Buffer.alloc(1500, "a"), Buffer.from(".")]);
  await withPage(browser, async (page) => {
    await drop(page, "body", [{ name: "deep.pkl", bytes: deep }]);
    await page.waitForSelector("#error");
    assert.match(await page.textContent("#error"), /Over a limit/);
    assert.doesNotMatch(await page.textContent("#error main"), /--limit/);
    assert.match(await page.textContent(".hint:has(#raise)"), /memory and minutes/);
    await page.click("#raise");
    await page.waitForSelector("#work .row");
    await page.locator("#work .row .cv .v", { hasText: "7" }).waitFor();
  });
});

test("far more than the file holds is read and written only after a question", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped("attacks2/h5_fill_2000x1GB.h5")]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("v");
    await page.waitForSelector("#verify-begin");
    assert.ok(await page.isDisabled("#verify-begin"));
    assert.match(await page.textContent("#verify-form"), /Go through 2(\.00)? TB that the file has in [\d.]+ kB/);
    await page.check("#verify-form .far-more");
    assert.ok(await page.isEnabled("#verify-begin"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("s");
    const read = page.getByRole("button", { name: /^Read all values/ });
    await read.waitFor();
    assert.ok(await read.isDisabled());
    await page.check(".far-more");
    assert.ok(await read.isEnabled());
    await page.keyboard.press("Escape");
    await page.keyboard.press("c");
    await page.click('[role="radio"]:has-text("PyTorch")');
    await page.waitForSelector(".plan:not(.late) .loss");
    assert.match(await page.textContent(".plan"), /This writes 2(\.00)? TB of what the source has in/);
    assert.ok(await page.isDisabled("#write"));
  });
});
