// Checkpoints of several files, dropped together, are one; what comes of them is what the command
// writes.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { command, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-sets-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

for (const [set, main, target, choice, extension] of [
  ["tf/saver_v2_sharded", /\.index$/, "safetensors", "safetensors", "safetensors"],
  ["hf_sharded_safetensors", /\.index\.json$/, "cerebras", "Cerebras", "mdl"],
]) {
  test(`the files of ${set} become one ${extension}, as the command writes it`, async () => {
    const names = readdirSync(fixture(set)).filter((name) => !name.endsWith(".expected.json"));
    const output = join(folder, `out.${extension}`);
    const source = join(fixture(set), names.find((name) => main.test(name)));
    execFileSync(command, ["convert", source, output, "--to", target, "--lossy"], { stdio: "pipe" });
    const expected = readFileSync(output);
    await withPage(browser, async (page) => {
      await page.addInitScript(() => delete window.showSaveFilePicker);
      await page.reload();
      await drop(page, "body", names.map((name) => dropped(`${set}/${name}`)));
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.click(`[role="radio"]:has-text("${choice}")`);
      await page.waitForSelector(".plan:not(.late)");
      for (const box of await page.$$(".loss input")) await box.check();
      await page.waitForSelector("#write:not([disabled])");
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
      await page.waitForSelector("#convert-done");
      assert.match(await page.textContent("#read-back"), /The structure is as planned: \d+ tensors/);
      const written = readFileSync(await download.path());
      assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
    });
  });
}

/** Opens the convert sheet and chooses a format; every loss is acknowledged. */
async function plan(page, choice) {
  await page.waitForSelector("#work .row");
  await page.keyboard.press("c");
  await page.click(`[role="radio"]:has-text("${choice}")`);
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

/** What the page writes, by file name. */
async function downloads(page, count) {
  const files = {};
  const all = new Promise((resolve) => {
    page.on("download", async (download) => {
      files[download.suggestedFilename()] = readFileSync(await download.path());
      if (Object.keys(files).length === count) resolve(files);
    });
  });
  await page.click("#write");
  await page.waitForSelector("#convert-done");
  return all;
}

/** What the command writes into an empty folder. */
function byCommand(source, name, ...options) {
  const output = mkdtempSync(join(folder, "by-command-"));
  execFileSync(command, ["convert", fixture(source), join(output, name), "--lossy", ...options], { stdio: "pipe" });
  return Object.fromEntries(readdirSync(output).map((file) => [file, readFileSync(join(output, file))]));
}

test("a folder that holds a TensorFlow checkpoint becomes safetensors", async () => {
  await withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    // As the folder dialog hands it over, with what else lies there.
    await page.setInputFiles("#choose-folder", fixture("tf/saver_v2_sharded"));
    await plan(page, "safetensors");
    const [written] = Object.values(await downloads(page, 1));
    const expected = byCommand("tf/saver_v2_sharded", "out.safetensors")["out.safetensors"];
    assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
  });
});

test("a checkpoint becomes all files of a TensorFlow bundle", async () => {
  await withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await drop(page, "body", [dropped("cerebras/v2.10.0/seed.mdl")]);
    await plan(page, "TensorFlow");
    const files = await downloads(page, 2);
    const prefix = Object.keys(files).find((name) => name.endsWith(".index")).replace(/\.index$/, "");
    const expected = byCommand("cerebras/v2.10.0/seed.mdl", prefix, "--to", "tensorflow");
    assert.deepEqual(Object.keys(files).sort(), Object.keys(expected).sort());
    for (const [name, bytes] of Object.entries(expected)) assert.ok(files[name].equals(bytes), name);
  });
});
