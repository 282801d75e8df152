// Layers fold by number and shape, whatever their order in the file.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { command, drop, launch, withPage } from "./harness.mjs";
import { safetensors } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** The keys of a model, sorted as text: layers 0, 1, 10, 11, …. */
const layers = Array.from({ length: 32 }, (_, layer) => ["attn.q", "mlp.up", "norm"].map((name) => `model.layers.${layer}.${name}.weight`));
const keys = ["model.embed.weight", ...layers.flat(), "model.norm.weight"].sort();

const open = async (page) => {
  await drop(page, "body", [{ name: "model.safetensors", bytes: safetensors(keys) }]);
  await page.waitForSelector("#work .row");
};

test("a model sorted by key folds once in table and tree, and steps through all layers", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    const folds = await page.$$eval(".row.fold", (rows) => rows.map((row) => row.querySelector(".ck").textContent));
    assert.equal(folds.length, 1, folds.join("; "));
    assert.match(folds[0], /model\.layers\.0–31 ×32/);
    const tree = await page.$$eval('[role="treeitem"]', (lines) => lines.map((line) => line.textContent));
    const repeated = tree.filter((line) => line.includes("×"));
    assert.equal(repeated.length, 1, tree.join("; "));
    assert.match(repeated[0], /layers.*×32/);

    await page.click('.row:has([title="model.layers.0–31.mlp.up.weight"])');
    for (let layer = 0; layer < 32; layer++) {
      const label = `layer ${layer} of 0–31`;
      await page.waitForFunction((label) => document.querySelector(".insp .step")?.textContent.includes(label), label);
      assert.equal(await page.textContent(".insp .wrapkey"), `model.layers.${layer}.mlp.up.weight`);
      await page.keyboard.press(".");
    }
    await page.keyboard.press(",");
    await page.waitForFunction(() => /layer 30 of/.test(document.querySelector(".insp .step").textContent));
  });
});

test("the HTML summary of a model sorted by key folds once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "folding-"));
  const context = await browser.newContext({ offline: true });
  try {
    const file = join(folder, "model.safetensors");
    writeFileSync(file, safetensors(keys));
    const { status, stdout, stderr } = spawnSync(command, ["summary", file, "--to", "html"], { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    const page = await context.newPage();
    await page.goto(`data:text/html;base64,${Buffer.from(stdout).toString("base64")}`);
    const rows = page.locator("tbody tr");
    await rows.first().waitFor();
    const cells = await page.$$eval("tbody tr td:first-child", (cells) => cells.map((cell) => cell.textContent));
    assert.deepEqual(cells, [
      "model.embed.weight",
      ...["attn.q", "mlp.up", "norm"].map((name) => `model.layers.0–31.${name}.weight×32`),
      "model.norm.weight",
    ]);
    await page.getByRole("checkbox", { name: "fold layers" }).click();
    assert.equal(await rows.count(), keys.length);
  } finally {
    await context.close();
    rmSync(folder, { recursive: true });
  }
});
