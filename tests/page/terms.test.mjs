// Filter terms: the menu, suggestions, columns of values, and the sparkline by keyboard.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessibility, becomes, drop, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

// Ten layers with growing deviations, one of them with a NaN.
const layer = (at) => Array.from({ length: 16 }, (_, row) => Array.from({ length: 8 }, (_, column) => (at + 1) * ((((row * 8 + column) * 37) % 101) - 50)));
const layers = Object.fromEntries(Array.from({ length: 10 }, (_, at) => [`model.layers.${at}.mlp.weight`, layer(at)]));
layers["model.layers.6.mlp.weight"][3][2] = NaN;
const model = floats({ ...layers, "model.norm.weight": [1, 1, 1, 1] });

async function open(page) {
  await drop(page, "#start", [{ name: "model.safetensors", bytes: model }]);
  await page.waitForSelector("#work .row");
}

async function scan(page) {
  await page.click("#scan");
  await page.waitForSelector("#scanned");
}

test("the filter menu lists terms with their number of matches (core)", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    await page.keyboard.press("/");
    await page.waitForSelector("#terms");
    const terms = () => page.evaluate(() => Object.fromEntries([...document.querySelectorAll("#terms [role=option]")].map((one) => [one.querySelector("code").textContent, one.lastElementChild.textContent])));
    assert.equal((await terms())["dtype:f32"], "11 keys");
    assert.equal((await terms())["shape:[*, 8]"], "10 keys");
    assert.equal((await terms())["nan>0"], "after Read values");
    assert.deepEqual(await accessibility(page, "terms"), []);
    await page.keyboard.press("Escape");
    await becomes(() => page.locator("#terms").count(), 0);
    await scan(page);
    await page.keyboard.press("/");
    await page.waitForSelector("#terms");
    assert.equal((await terms())["nan>0"], "1 key");
    await page.locator("#terms").getByRole("option", { name: "nan>0" }).first().click();
    assert.equal(await page.inputValue("#filter"), "nan>0");
    await becomes(() => page.locator(".hits").textContent(), "1 key");
    assert.equal(await page.locator("#terms").count(), 0);
  });
});

test("an unknown term is underlined, and a similar one suggested", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    await page.fill("#filter", "mlp dtpye:f32");
    assert.equal(await page.textContent(".mirror u"), "dtpye");
    // The underline is below the typed text.
    const [typed, under] = await page.evaluate(() => ["#filter", ".mirror"].map((one) => document.querySelector(one).getBoundingClientRect().left));
    assert.ok(Math.abs(typed - under) <= 1, `${typed} ${under}`);
    await page.click("#meant");
    assert.equal(await page.inputValue("#filter"), "mlp dtype:f32");
    await becomes(() => page.locator(".hits").textContent(), "10 keys");
    assert.equal(await page.locator(".mirror").count(), 0);
  });
});

test("columns of values can be chosen, and the choice is stored", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    await scan(page);
    const heads = () => page.locator('.head [role="columnheader"]').evaluateAll((all) => all.map((one) => one.textContent.split(" \u00b7")[0].trim()));
    assert.deepEqual((await heads()).slice(3), ["\u03c3", "by layer", "|x| max", "zeros", "NaN, Inf"]);
    await page.click("#columns summary");
    await page.locator("#columns").getByRole("checkbox", { name: "min" }).first().check();
    await page.locator("#columns").getByRole("checkbox", { name: "zeros" }).first().uncheck();
    const wanted = ["\u03c3", "by layer", "|x| max", "min", "NaN, Inf"];
    await becomes(async () => (await heads()).slice(3), wanted);
    // The minimum of a fold is that of its layers, here of the last one.
    assert.equal(await page.locator(".row.fold .wmn").textContent(), "\u2212500");
    // Escape closes the menu, and its button gets the focus.
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#columns[open]").count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.closest("#columns") !== null), true);
    await page.locator(".head").getByRole("button", { name: "min" }).first().click();
    await page.reload();
    await page.waitForSelector("#start");
    await open(page);
    await scan(page);
    assert.deepEqual((await heads()).slice(3), wanted);
  }, { viewport: { width: 1800, height: 900 } }); // wide enough for all columns and whole keys
});

test("arrow keys move through the sparkline of layers, and Enter selects one", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    await scan(page);
    await page.keyboard.press("j");
    const line = page.locator('.spark[tabindex="0"]').first();
    await line.focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    assert.match(await page.textContent(".spark .tip"), /^layer 1: \u03c3 /);
    assert.match(await line.getAttribute("aria-valuetext"), /^layer 1: \u03c3 /);
    assert.deepEqual(await accessibility(page, "line over layers"), []);
    await page.keyboard.press("End");
    await page.keyboard.press("Enter");
    await becomes(() => page.locator(".insp .wrapkey").first().textContent(), "model.layers.9.mlp.weight");
  });
});
