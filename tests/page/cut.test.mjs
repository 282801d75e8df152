// Checkpoints that were cut short: complete tensors are shown, and missing ones are marked.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, drop, dropped, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("missing tensors of a cut file are a gap in the tape and marked in their rows (core)", () =>
  withPage(browser, async (page) => {
    const row = Array.from({ length: 64 }, (_, at) => at);
    const names = Array.from({ length: 6 }, (_, at) => `model.layers.${at}.weight`);
    const whole = floats(Object.fromEntries([["embed", row], ...names.map((name) => [name, row])]));
    await drop(page, "body", [{ name: "cut.safetensors", bytes: whole.subarray(0, whole.length - 3 * 256) }]);
    await page.waitForSelector("#work .row");
    const gap = page.locator(".tape .gap rect");
    await becomes(() => gap.count(), 1);
    // Three of seven tensors are missing, at the end.
    const [tape, missing] = [await page.locator(".tape svg").boundingBox(), await gap.boundingBox()];
    assert.ok(Math.abs(missing.width - (tape.width * 3) / 7) < 2);
    const marks = page.locator("#work .gone");
    // The row of the folded layers, and the tensor in them.
    assert.deepEqual(await marks.allTextContents(), ["3 missing", "3 missing"]);
    const fits = await marks.evaluateAll((marks) => marks.every((mark) => {
      const [mine, row] = [mark, mark.closest(".row")].map((of) => of.getBoundingClientRect());
      return mine.width > 0 && mine.left >= row.left && mine.right <= row.right;
    }));
    assert.ok(fits, "the mark is not cut");
    await page.keyboard.press("l");
    await becomes(() => marks.allTextContents(), ["missing", "missing", "missing"]);
  }));

/** The WCAG contrast of two colours, as the browser computes them: `rgb(…)`. */
function contrast(...colours) {
  const [light, dark] = colours
    .map((colour) => colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)))
    .map(([red, green, blue]) => 0.2126 * red + 0.7152 * green + 0.0722 * blue)
    .sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

for (const colorScheme of ["light", "dark"]) {
  test(`the hatching of missing and unread parts is legible in ${colorScheme} colours`, () =>
    withPage(
      browser,
      async (page) => {
        const whole = floats({ whole: [[1, 2], [3, 4]], missing: [[1, 2], [3, 4]] });
        await drop(page, "body", [{ name: "cut.safetensors", bytes: whole.subarray(0, whole.length - 16) }]);
        await page.waitForSelector(".tape .gap rect");
        assert.match(await page.$eval(".tape .gap rect", (rect) => getComputedStyle(rect).fill), /#hatching/);
        const fills = await page.$$eval("#hatching rect", (rects) => rects.map((rect) => getComputedStyle(rect).fill));
        assert.ok(contrast(...fills) >= 4.5, fills.join());
        await page.click('#work .row[data-key="whole"]');
        await page.keyboard.press("e");
        await page.waitForSelector("#overview");
        const lines = await page.$eval("#overview", (map) => getComputedStyle(map).backgroundImage.match(/rgb\([^)]*\)/g));
        const colours = [...new Set(lines)];
        assert.equal(colours.length, 2);
        assert.ok(contrast(...colours) >= 3, colours.join());
      },
      { colorScheme },
    ));
}

test("a cut PyTorch file opens with its complete tensors", () =>
  withPage(browser, async (page) => {
    const { bytes } = dropped("reports/cut.pt");
    for (const part of [0.5, 0.8]) {
      await drop(page, "body", [{ name: "cut.pt", bytes: bytes.subarray(0, part * bytes.length) }]);
      await page.waitForSelector("#work .row");
      await page.waitForSelector(".notice");
    }
    // If the structure is cut as well, the error is not that of the zip library.
    await drop(page, "body", [{ name: "cut.pt", bytes: bytes.subarray(0, 200) }]);
    await page.waitForSelector("#error");
    assert.doesNotMatch(await page.textContent("#error h1, #error h2"), /EOCD|invalid Zip/i);
  }));
