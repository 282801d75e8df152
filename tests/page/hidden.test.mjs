// Keys and names with invisible characters, or characters that change the direction of text, are shown escaped.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { drop, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("invisible characters of a key are shown, and right-to-left keys do not reorder their rows", async () => {
  const keys = ["a\u202eb.weight", "\u05e9\u05dc\u05d5\u05dd.weight", "e\u0301.weight", "zero\u200bwidth"];
  const odd = floats(Object.fromEntries(keys.map((key) => [key, [[1, 2, 3], [4, 5, 6]]])));
  await withPage(browser, async (page) => {
    await drop(page, "#start", [{ name: "od\u202ed.safetensors", bytes: odd }]);
    await page.waitForSelector("#work .row");
    assert.equal(await page.textContent(".top .name"), "od\\u202ed.safetensors");
    const shown = await page.locator(".row .ck .key").allTextContents();
    assert.ok(shown.some((text) => text.includes("a\\u202eb.weight")), shown.join());
    assert.ok(shown.some((text) => text.includes("zero\\u200bwidth")), shown.join());
    assert.ok(shown.some((text) => text.includes("\u05e9\u05dc\u05d5\u05dd")), shown.join());
    // No other text or attribute contains them, except the values of fields.
    const hidden = await page.evaluate(() => {
      const attributes = [...document.querySelectorAll("#work *")].flatMap((one) => [...one.attributes].filter(({ name }) => name !== "value").map(({ name, value }) => `${name}=${value}`));
      return [document.querySelector("#work").textContent, ...attributes].filter((text) => /[\u202e\u200b]/.test(text));
    });
    assert.deepEqual(hidden, []);
    // The cells of a row are in order, whatever their text.
    const orders = await page.evaluate(() => [...document.querySelectorAll(".row:not(.grp)")].map((row) => [...row.children].map((cell) => Math.round(cell.getBoundingClientRect().left))));
    for (const lefts of orders) assert.deepEqual(lefts, lefts.toSorted((one, other) => one - other));
  });
});
