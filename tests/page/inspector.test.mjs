// The inspector: facts about a key, code that reads it, and saved tensors.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { command, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

const TRAINER = "cerebras/v2.10.0/gpt_small.mdl";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-inspector-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function select(page, name, key) {
  await drop(page, "body", [dropped(name)]);
  await page.waitForSelector("#work .row");
  await page.fill("#filter", key);
  await page.locator(`#work .row[data-key$="${key.split(".").pop()}"]`).first().click();
  await page.waitForSelector(`.insp[data-key="${key}"]`);
}

test("an optimizer entry names its parameter and links to it", async () => {
  await withPage(browser, async (page) => {
    await select(page, TRAINER, "optimizer.state.4.exp_avg");
    await page.locator(".top .facts", { hasText: "32.19 k params" }).waitFor();
    // The worker sends this after the key is shown.
    const facts = page.locator(".insp .facts", { hasText: "matched by order and shape; 1 key of the model has no entry" });
    await facts.waitFor();
    await facts.getByRole("button", { name: "qkv.weight" }).click();
    await page.waitForSelector('.insp[data-key="model.model.blocks.0.qkv.weight"]');
  });
});

test("the Python code that reads a tensor equals the command's (core)", async () => {
  await withPage(browser, async (page) => {
    const name = "safetensors/order.safetensors";
    const entries = JSON.parse(execFileSync(command, ["ls", "--json", fixture(name)])).entries;
    const { key } = entries.find(({ dtype }) => dtype);
    await select(page, name, key);
    const codeOf = (library) =>
      execFileSync(command, ["show", fixture(name), key, `--code=${library}`])
        .toString()
        .replace(fixture(name), "order.safetensors")
        .trim();
    await page.waitForSelector("#code");
    assert.equal(await page.textContent("#code pre"), codeOf("safetensors"));
    await page.locator("#code").getByRole("button", { name: "numpy.memmap" }).first().click();
    assert.equal(await page.textContent("#code pre"), codeOf("numpy.memmap"));
  });
});

for (const extension of ["npy", "npz", "safetensors"]) {
  test(`a tensor is saved as .${extension} at once, as the command exports it`, async () => {
    await withPage(browser, async (page) => {
      const key = "model.model.wpe.weight";
      await select(page, TRAINER, key);
      const save = page.locator(".saveas").getByRole("button", { name: `.${extension}`, exact: true });
      const [download] = await Promise.all([page.waitForEvent("download"), save.click()]);
      assert.equal(download.suggestedFilename(), `${key}.${extension}`);
      assert.equal(await page.locator('[role="dialog"]').count(), 0);
      const expected = join(folder, `x.${extension}`);
      execFileSync(command, ["export", fixture(TRAINER), key, expected, "--force"]);
      const written = readFileSync(await download.path());
      assert.ok(written.equals(readFileSync(expected)), `${written.length} bytes`);
    });
  });
}
