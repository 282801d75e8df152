// A config that is filled in from the file, so that a training checkpoint becomes a Cerebras model on the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { becomes, drop, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** A small Llama with the names of Hugging Face, and without a config. */
function llama() {
  const matrix = (rows, columns) => Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => ((row * 7 + column * 3) % 11) / 100));
  const tensors = { "model.embed_tokens.weight": matrix(32, 16) };
  for (const layer of [0, 1]) {
    const key = `model.layers.${layer}`;
    for (const [name, rows] of [["q", 16], ["k", 8], ["v", 8], ["o", 16]]) tensors[`${key}.self_attn.${name}_proj.weight`] = matrix(rows, 16);
    for (const name of ["gate", "up"]) tensors[`${key}.mlp.${name}_proj.weight`] = matrix(24, 16);
    tensors[`${key}.mlp.down_proj.weight`] = matrix(16, 24);
    for (const name of ["input", "post_attention"]) tensors[`${key}.${name}_layernorm.weight`] = matrix(1, 16)[0];
  }
  tensors["model.norm.weight"] = matrix(1, 16)[0];
  tensors["lm_head.weight"] = matrix(32, 16);
  return floats(tensors);
}

test("models that fit are buttons, and the config is filled in from the shapes", async () => {
  await withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await drop(page, "#start", [{ name: "train.safetensors", bytes: llama() }]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector("#family");
    const fitting = await page.$$eval("#fitting button", (buttons) => buttons.map((button) => button.dataset.model));
    if (fitting.length > 0) {
      assert.ok(fitting.includes("llama") && !fitting.some((name) => name.endsWith("-headless")), `${fitting}`);
      await page.click('#fitting [data-model="llama"]');
    }
    await becomes(() => page.getAttribute("#family", "data-model"), "llama");
    await page.locator(".famtargets").getByRole("radio", { name: /Cerebras/ }).first().click();
    await page.waitForSelector("#guided-config");
    assert.match(await page.textContent("#guided-config"), /layers 2, hidden 16, MLP 24, vocabulary 32/);
    assert.equal(await page.textContent("#guided-missing"), "Type the heads.");
    // On a phone, the line above "Write" is not cut, and leads to the form.
    const viewport = page.viewportSize();
    for (const width of [320, 390]) {
      await page.setViewportSize({ width, height: 700 });
      const why = page.locator("#why-not");
      assert.ok(await why.evaluate((it) => it.scrollWidth <= it.clientWidth + 1 && getComputedStyle(it).whiteSpace !== "nowrap"), `${width}`);
      await why.getByRole("button", { name: "Fill it in" }).click();
      await becomes(() => page.evaluate(() => document.activeElement.id), "config-num_attention_heads");
    }
    await page.setViewportSize(viewport);
    assert.ok(await page.locator("#guided-use").isDisabled());
    await page.fill("#config-num_attention_heads", "3");
    assert.match(await page.textContent("#guided-missing"), /3 heads do not fit/);
    await page.fill("#config-num_attention_heads", "4");
    assert.match(await page.textContent("#guided-config"), /2 heads for keys and values/);
    const [saved] = await Promise.all([page.waitForEvent("download"), page.click("#guided-save")]);
    assert.equal(JSON.parse(readFileSync(await saved.path(), "utf8")).num_key_value_heads, 2);
    await page.click("#guided-use");
    await page.waitForSelector("#config-save");
    assert.match(await page.textContent("#family-config-name"), /filled in by you\. The command needs it as a file/);
    await page.waitForSelector("#loads");
    assert.match(await page.textContent("#loads"), /Yes/);
    await page.waitForSelector("#write:not([disabled])");
    const downloads = [];
    page.on("download", (download) => downloads.push(download.suggestedFilename()));
    await page.click("#write");
    await page.waitForSelector("#convert-done");
    await becomes(async () => downloads.some((name) => name.endsWith(".mdl")) && downloads.length === 2, true);
  });
});
