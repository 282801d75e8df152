// Everything can be reached without a mouse, and fits a small screen.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, drop, dropped, launch, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

async function gpt(page) {
  await drop(page, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl")]);
  await page.waitForSelector("#work .row");
}

/** Waits until a row is selected; the page handles key presses in a later frame. */
const isSelected = (page, key) =>
  becomes(() => page.evaluate(() => document.querySelector(".row.sel .ck")?.title), key);

test("keys reach rows, folds, layers, the filter and sheets (core)", async () => {
  await withPage(browser, async (page) => {
    await gpt(page);
    await page.keyboard.press("j");
    await isSelected(page, "model.model.wte.weight");
    for (const key of ["j", "j"]) await page.keyboard.press(key);
    await isSelected(page, "model.model.blocks.0–1");
    await page.keyboard.press("ArrowLeft");
    await page.waitForSelector(".row.kid [title*='blocks.0–1.qkv']", { state: "detached" });
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("j");
    await isSelected(page, "model.model.blocks.0–1.ln_1.weight");
    await page.keyboard.press(".");
    await becomes(() => page.textContent(".insp .wrapkey"), "model.model.blocks.1.ln_1.weight");
    await page.keyboard.press("k");
    await isSelected(page, "model.model.blocks.0–1");
    await page.keyboard.press("Home");
    await isSelected(page, "model.model.wte.weight");

    await page.keyboard.press("/");
    await page.keyboard.type("blocks.*.bias shape:[96]");
    // The count is updated shortly after the last letter.
    await page.waitForSelector('.hits[data-count="2"]');
    await page.keyboard.press("Escape");
    assert.equal(await page.inputValue("#filter"), "");
    assert.equal(await page.evaluate(() => document.activeElement.id), "");

    await page.keyboard.press("/");
    await page.keyboard.type("nothing_like_it");
    assert.match(await page.textContent(".empty"), /No key matches/);
    await page.click(".empty button");
    assert.equal(await page.$(".empty"), null);

    await page.keyboard.press("l");
    assert.equal(await page.$(".row.fold"), null);
    await page.keyboard.press("l");
    await page.waitForSelector(".row.fold");

    for (const [key, name] of [["?", "Shortcuts"], ["f", "Findings"], ["c", "Convert"]]) {
      await page.keyboard.press(key);
      const dialog = page.locator('[role="dialog"]');
      assert.equal(await dialog.getAttribute("aria-label"), name);
      for (let at = 0; at < 40; at++) await page.keyboard.press("Tab");
      assert.ok(await dialog.evaluate((node) => node.contains(document.activeElement)), `${name} keeps the focus`);
      await page.keyboard.press("Escape");
      await dialog.waitFor({ state: "detached" });
    }
  });
});

test("the tree works by keys and by clicks", async () => {
  await withPage(browser, async (page) => {
    await gpt(page);
    await page.focus('[role="tree"]');
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    const branch = page.locator('[role="treeitem"][aria-selected="true"]');
    assert.equal(await branch.count(), 1);
    await page.getByRole("treeitem", { name: "optimizer" }).locator(".t").first().click();
    await page.waitForSelector(".row.sel .ck[title^=\"optimizer.\"]");
    const label = await page.getAttribute(".tapeview", "aria-label");
    assert.match(label, /model .* f32, optimizer/);
  });
});

test("key presses faster than the tree renders are all handled", async () => {
  await withPage(browser, async (page) => {
    await gpt(page);
    const press = (...keys) =>
      page.$eval('[role="tree"]', (tree, keys) => {
        tree.focus();
        for (const key of keys) tree.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      }, keys);
    const line = () => page.$eval('[role="treeitem"][aria-selected="true"]', (line) => Number(line.id.replace("branch-", "")));
    await press("Home");
    await page.waitForFunction(() => document.querySelector('[role="treeitem"][aria-selected="true"]')?.id === "branch-0");
    await press("ArrowDown", "ArrowDown", "ArrowDown");
    await page.waitForFunction(() => document.querySelector('[role="treeitem"][aria-selected="true"]')?.id !== "branch-0");
    assert.equal(await line(), 3);
    await press("ArrowUp", "Home", "ArrowDown", "ArrowDown");
    await page.waitForFunction(() => document.querySelector('[role="treeitem"][aria-selected="true"]')?.id !== "branch-3");
    assert.equal(await line(), 2);
  });
});

test("a column head sorts by size, and the third click restores the file order", async () => {
  await withPage(browser, async (page) => {
    await gpt(page);
    const first = () => page.$eval(".row .ck", (cell) => cell.textContent);
    const before = await first();
    const head = page.getByRole("columnheader", { name: "bytes" }).getByRole("button");
    await head.click();
    assert.equal(await page.getAttribute('[role="columnheader"].cb', "aria-sort"), "descending");
    assert.notEqual(await first(), before);
    await head.click();
    assert.equal(await page.getAttribute('[role="columnheader"].cb', "aria-sort"), "ascending");
    await head.click();
    assert.equal(await first(), before);
  });
});

test("nothing is wider than a screen of 360 pixels", async () => {
  await withPage(
    browser,
    async (page) => {
      const fits = async (what) => {
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= 360, `${what}: ${width}`);
      };
      await fits("start");
      await gpt(page);
      await fits("keys");
      await page.click(".row.kid");
      await page.waitForSelector(".insp .facts");
      assert.equal(await page.getByRole("tab", { name: "Tensor" }).first().getAttribute("aria-selected"), "true");
      await fits("tensor");
      await page.getByRole("tab", { name: "Tree" }).first().click();
      await page.waitForSelector(".tree li");
      await fits("tree");
      for (const key of ["?", "f", "c"]) {
        await page.keyboard.press(key);
        await page.waitForSelector('[role="dialog"]');
        await fits(key);
        await page.keyboard.press("Escape");
      }
      await drop(page, "body", [{ name: "x.pt", bytes: "nothing" }]);
      await page.waitForSelector("#error");
      await fits("error");
    },
    { viewport: { width: 360, height: 740 } },
  );
});
