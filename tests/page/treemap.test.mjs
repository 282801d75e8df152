// The treemap of bytes.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { becomes, drop, launch, withPage } from "./harness.mjs";
import { safetensors } from "./make.mjs";

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
    // Each level is a button of its own; the first of them goes back to the whole.
    await page.locator(".mapway button").first().click();
    await page.waitForSelector(".mapway [aria-current]", { state: "detached" });
    assert.match(await title(0), /^w00000 … w09999 /);
  }));

test("what is inside a run of layers is named with the range, and so is the way to it", () =>
  withPage(browser, async (page) => {
    const parts = ["attn.q", "attn.k", "mlp.up", "mlp.down"];
    const keys = Array.from({ length: 40 }, (_, at) => parts.map((part) => `model.layers.${at}.${part}.weight`)).flat();
    await treemap(page, keys);
    const inside = page.locator(".map .box.open", { hasText: "mlp" });
    await inside.last().locator(".t").click({ force: true });
    await page.waitForSelector(".mapway [aria-current]");
    assert.equal(await page.getAttribute(".mapway [aria-current]", "title"), "model.layers.0–39.mlp");
    // Every box says its share.
    const shares = await page.locator(".map .box").evaluateAll((boxes) => boxes.map((box) => / %/.test(box.textContent)));
    assert.ok(shares.every(Boolean));
  }));
