// The byte map: marks of tensors that are not finite or differ, the key under the pointer, zooming, and brushing.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessibility, becomes, choosing, drop, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

// Four tensors of 64 bytes each.
const values = Array.from({ length: 16 }, (_, at) => at);
const odd = floats({ "a.weight": values, "b.weight": values.with(3, NaN), "c.weight": values, "d.weight": values });
const moved = floats({ "a.weight": values, "b.weight": values, "c.weight": values.with(0, 9), "d.weight": values });

async function open(page, bytes = odd) {
  await drop(page, "#start", [{ name: "model.safetensors", bytes }]);
  await page.waitForSelector("#work .row");
  return page.locator("#work .tapeview").boundingBox();
}

const keys = (page) => page.$$eval("#work .row:not(.grp)", (rows) => rows.map((row) => row.dataset.key));

test("a scan marks tensors with a NaN on the byte map, and the pointer names keys", async () => {
  await withPage(browser, async (page) => {
    const { x, y, width } = await open(page);
    assert.equal(await page.locator(".tapeview .notfinite").count(), 0);
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    await becomes(() => page.locator("#work .tapeview .notfinite").count(), 1);
    await page.mouse.move(x + width * 0.6, y + 20);
    await becomes(() => page.textContent(".tapetip"), "c.weight");
    await page.mouse.move(x + width * 0.375, y + 20);
    await becomes(() => page.textContent(".tapetip"), "NaN or Inf \u00b7 b.weight");
    assert.deepEqual(await accessibility(page, "marks on the byte map"), []);
  });
});

test("a range dragged over the byte map limits the table, until its chip is pressed", async () => {
  await withPage(browser, async (page) => {
    const { x, y, width } = await open(page);
    await page.mouse.move(x + width * 0.55, y + 20);
    await page.mouse.down();
    await page.mouse.move(x + width * 0.7, y + 20);
    await page.mouse.move(x + width * 0.9, y + 20);
    await page.mouse.up();
    await becomes(() => keys(page), ["c.weight", "d.weight"]);
    await page.getByRole("button", { name: /^bytes / }).click();
    await becomes(() => keys(page), ["a.weight", "b.weight", "c.weight", "d.weight"]);
    // A click still selects.
    await page.mouse.click(x + width * 0.1, y + 20);
    await page.waitForSelector('.row.sel[data-key="a.weight"]');
  });
});

test("the wheel zooms into the byte map around the pointer, and a button shows the whole again", async () => {
  await withPage(browser, async (page) => {
    const { x, y, width } = await open(page);
    await page.mouse.move(x + width * 0.6, y + 20);
    for (let turn = 0; turn < 4; turn++) await page.mouse.wheel(0, -100);
    await page.waitForSelector(".unzoom");
    await becomes(() => page.textContent(".tapetip"), "c.weight");
    await page.mouse.move(x + width * 0.5, y + 20);
    await becomes(() => page.textContent(".tapetip"), "c.weight");
    await page.click(".unzoom");
    await page.mouse.move(x + width * 0.4, y + 20);
    await becomes(() => page.textContent(".tapetip"), "b.weight");
  });
});

test("a comparison marks what differs on the bytes of the first", async () => {
  await withPage(browser, async (page) => {
    await open(page, floats({ "a.weight": values, "b.weight": values, "c.weight": values, "d.weight": values }));
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles({ name: "after.safetensors", mimeType: "", buffer: moved });
    await page.waitForSelector("#save-report:not([disabled])");
    const line = await page.getAttribute("#differs .differs", "d");
    const { width } = await page.locator("#differs .tapeview").boundingBox();
    const [, from, to] = /^M([\d.]+) [\d.]+H([\d.]+)$/.exec(line).map(Number);
    assert.ok(Math.abs(from / width - 0.5) < 0.01 && Math.abs(to / width - 0.75) < 0.01, `${line} of ${width}`);
  });
});
