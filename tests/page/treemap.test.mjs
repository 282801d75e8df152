// The treemap of bytes.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, drop, launch, withPage } from "./harness.mjs";
import { safetensors, stored } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

async function treemap(page, keys) {
  await drop(page, "body", [{ name: "model.safetensors", bytes: safetensors(keys) }]);
  await page.waitForSelector("#work .row");
  await page.keyboard.press("t");
  await page.waitForSelector(".map .box");
}

test("a hundred thousand flat keys are divided into ranges that a click opens (core)", () =>
  withPage(browser, async (page) => {
    await treemap(page, Array.from({ length: 100_000 }, (_, at) => `w${String(at).padStart(5, "0")}`));
    const boxes = page.locator(".map .box");
    assert.ok((await boxes.count()) >= 20);
    const title = (at) => boxes.nth(at).getAttribute("title");
    assert.match(await title(0), /^w00000 … w09999 /);
    await page.locator(".map .box.open .t").first().click({ force: true });
    await page.waitForSelector(".mapway [aria-current]");
    assert.match(await title(0), /^w00000 … w00999 /);
    await page.locator(".map .box.open .t").nth(2).click({ force: true });
    await becomes(() => page.locator(".mapway .m").count(), 2);
    // Each level is a button; the first one returns to the whole checkpoint.
    await page.locator(".mapway button").first().click();
    await page.waitForSelector(".mapway [aria-current]", { state: "detached" });
    assert.match(await title(0), /^w00000 … w09999 /);
  }));

test("without colours, boxes of each dtype family except bfloat16 have a texture of their own", () =>
  withPage(browser, async (page) => {
    const dtypes = { f32: ["F32", 4], f16: ["F16", 2], f64: ["F64", 8], i32: ["I32", 4], bool: ["BOOL", 1], f8: ["F8_E4M3", 1], bf16: ["BF16", 2] };
    const tensors = Object.entries(dtypes).map(([name, [dtype, size]]) => [name, [dtype, [64], Buffer.alloc(64 * size)]]);
    await drop(page, "body", [{ name: "dtypes.safetensors", bytes: stored(Object.fromEntries(tensors)) }]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("t");
    await page.waitForSelector(".map .box");
    const drawn = () => page.$$eval(".map .box:not(.open)", (boxes) => boxes.map((box) => [box.title.split(" ")[0], getComputedStyle(box).backgroundImage]));
    assert.deepEqual([...new Set((await drawn()).map(([, image]) => image))], ["none"], "colours need no texture");
    await page.emulateMedia({ forcedColors: "active" });
    const textures = await drawn();
    const of = Object.fromEntries(textures);
    assert.deepEqual(Object.keys(of).sort(), Object.keys(dtypes).sort());
    assert.equal(of.bf16, "none");
    assert.match(of.f32, /^repeating-linear-gradient\(135deg, /, "float32 is hatched along the diagonal");
    assert.equal(new Set(Object.values(of)).size, textures.length, "no two families look the same");
  }));

test("boxes in folded layers, and the path to them, are named with the range of layers", () =>
  withPage(browser, async (page) => {
    const parts = ["attn.q", "attn.k", "mlp.up", "mlp.down"];
    const keys = Array.from({ length: 40 }, (_, at) => parts.map((part) => `model.layers.${at}.${part}.weight`)).flat();
    await treemap(page, keys);
    const inside = page.locator('.map .box.open[title*="mlp"]');
    await inside.last().locator(".t").click({ force: true });
    await page.waitForSelector(".mapway [aria-current]");
    assert.equal(await page.getAttribute(".mapway [aria-current]", "title"), "model.layers.0–39.mlp");
    // Every box shows its share.
    const shares = await page.locator(".map .box").evaluateAll((boxes) => boxes.map((box) => / %/.test(box.textContent)));
    assert.ok(shares.every(Boolean));
  }));
