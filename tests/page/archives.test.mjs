// Archives: stored members open in place; others are named, with what to do.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, drop, launch, withPage } from "./harness.mjs";
import { floats, zip } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const small = floats({ "a.weight": [[1, 2], [3, 4]] });
const other = floats({ "b.weight": [[5, 6]] });

test("checkpoints stored in a zip file open in place, as if they had been dropped", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "#start", [{ name: "set.zip", bytes: zip({ "x/one.safetensors": small, "x/two.safetensors": other, "readme.txt": Buffer.from("hello") }) }]);
    await page.waitForSelector("#work #rail");
    const names = () => page.$$eval("#rail .n", (names) => names.map((name) => name.textContent));
    await becomes(names, ["one.safetensors", "two.safetensors"]);
    await page.click('#rail [data-name="two.safetensors"] button');
    await page.waitForSelector('#work .row[data-key="b.weight"]');
    await page.click('#work .row[data-key="b.weight"]');
    await becomes(() => page.$$eval(".vals td:not(:empty)", (cells) => cells.map((cell) => cell.textContent)), ["5.0", "6.0"]);
  });
});

test("a compressed or encrypted archive names its members and says what to do", async () => {
  await withPage(browser, async (page) => {
    for (const [mode, words] of [["deflated", /compressed/], ["encrypted", /encrypted/]]) {
      await drop(page, "body", [{ name: `${mode}.zip`, bytes: zip({ "one.safetensors": small, "two.safetensors": other }, mode) }]);
      await page.waitForFunction((mode) => document.querySelector("#error .name")?.textContent === `${mode}.zip`, mode);
      const text = await page.textContent("#error");
      assert.match(text, /one\.safetensors .*two\.safetensors/);
      assert.match(text, words);
      assert.match(text, /unzip|7z/);
    }
  });
});
