// Checkpoints of several files: dropped together they open as one, and convert as by the command.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
      await page.waitForSelector("#start");
      await drop(page, "body", names.map((name) => dropped(`${set}/${name}`)));
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.getByRole("radio", { name: choice }).first().click();
      await page.waitForSelector(".plan:not(.late)");
      for (const box of await page.$$(".loss input")) await box.check();
      await page.waitForSelector("#write:not([disabled])");
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
      await page.waitForSelector("#convert-done");
      assert.match(await page.textContent("#read-back"), /Keys, dtypes, shapes, plain values and ties are as planned/);
      const written = readFileSync(await download.path());
      assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
    });
  });
}

/** Opens the convert sheet, selects options, and acknowledges every loss. */
async function plan(page, ...choices) {
  await page.waitForSelector("#work .row");
  await page.keyboard.press("c");
  for (const choice of choices) await page.getByRole("radio", { name: choice }).first().click();
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

/** Returns the files that the page writes, by name. */
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

/** Returns the files that the command writes, by name. */
function byCommand(source, name, ...options) {
  const output = mkdtempSync(join(folder, "by-command-"));
  execFileSync(command, ["convert", fixture(source), join(output, name), "--lossy", ...options], { stdio: "pipe" });
  return Object.fromEntries(readdirSync(output).map((file) => [file, readFileSync(join(output, file))]));
}

test("a folder with a TensorFlow checkpoint converts to safetensors", async () => {
  await withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    // Opens all files of the folder, as the dialog does.
    await page.setInputFiles("#choose-folder", fixture("tf/saver_v2_sharded"));
    await plan(page, "safetensors");
    const [written] = Object.values(await downloads(page, 1));
    const expected = byCommand("tf/saver_v2_sharded", "out.safetensors")["out.safetensors"];
    assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
  });
});

test("a checkpoint converts to all files of a TensorFlow bundle (core)", async () => {
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

test("object graph, state file and files by name match the command's output", async () => {
  const source = "cerebras/v2.10.0/gpt_small.mdl";
  await withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await drop(page, "body", [dropped(source)]);
    await plan(page, "TensorFlow");
    await page.check("#object-graph");
    await page.check("#state-file");
    const planned = (...words) => page.waitForFunction((words) => {
      const text = document.querySelector(".cmdline .m")?.textContent ?? "";
      return document.querySelector(".plan:not(.late)") && words.every((word) => text.includes(word));
    }, words);
    await planned("--object-graph", "--state-file");
    for (const box of await page.$$(".loss input")) await box.check();
    const bundle = await downloads(page, 3);
    const prefix = Object.keys(bundle).find((name) => name.endsWith(".index")).replace(/\.index$/, "");
    assert.ok("checkpoint" in bundle, Object.keys(bundle).join());
    assert.deepEqual(bundle, byCommand(source, prefix, "--to", "tensorflow", "--object-graph", "--state-file"));
    page.removeAllListeners("download");
    await page.getByRole("button", { name: "Convert again" }).first().click();
    await plan(page, "safetensors", "by name");
    const files = page.locator('.field:has(.lab:text-is("Files")) textarea');
    await files.fill("nothing like it=other");
    await page.waitForSelector('.refused:has-text("No key is left for nothing like it")');
    await files.fill("*wte*=embeddings\noptimizer.*=optimizer");
    await planned("--shard '*wte*=embeddings'", "--shard 'optimizer.*=optimizer'");
    for (const box of await page.$$(".loss input")) await box.check();
    const shards = await downloads(page, 4);
    const expected = byCommand(source, "gpt_small.safetensors", "--shard", "*wte*=embeddings", "--shard", "optimizer.*=optimizer");
    assert.deepEqual(shards, expected);
  });
});

test("names of TensorFlow variables form a tree split at slashes", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", fixture("tf/saver_v2_basic"));
    // Its two checkpoints are a run.
    await page.getByRole("button", { name: /^Open 200/ }).click();
    await page.waitForSelector("#work .row");
    const lines = await page.$$eval('[role="treeitem"]', (items) => items.map((item) => item.textContent));
    assert.ok(lines.length > 0 && lines.every((line) => !line.includes("/")), lines.join());
  });
});

test("a folder without a checkpoint is described as by the command", async () => {
  const clone = mkdtempSync(join(folder, "clone-"));
  const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:61c9\nsize 4938993736\n";
  writeFileSync(join(clone, "config.json"), "{}");
  writeFileSync(join(clone, "model.safetensors"), pointer);
  for (const source of [fixture("orbax/steps/10"), clone]) {
    const { stderr } = spawnSync(command, ["info", source], { encoding: "utf8" });
    const reason = /: this is (.*?)\. /.exec(stderr)[1];
    await withPage(browser, async (page) => {
      await page.setInputFiles("#choose-folder", source);
      await page.waitForSelector("#error");
      const text = await page.textContent("#error");
      assert.ok(text.includes(reason), `${text}\n${reason}`);
      if (source === clone) assert.match(text, /model\.safetensors.*git lfs pull --include model\.safetensors/s);
      // The same files without their folder.
      await page.click("#error .home");
      await page.waitForSelector("#start");
      const names = readdirSync(source, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
      await drop(page, "body", names.map(({ parentPath, name }) => ({ name, bytes: readFileSync(join(parentPath, name)) })));
      await page.waitForSelector("#error");
      assert.ok((await page.textContent("#error")).includes(reason));
    });
  }
});

test("a shard that is a Git LFS pointer is named, and can be replaced by the real one", async () => {
  const set = mkdtempSync(join(folder, "set-"));
  const name = "model-00002-of-00003.safetensors";
  cpSync(fixture("hf_sharded_safetensors"), set, { recursive: true });
  writeFileSync(join(set, name), "version https://git-lfs.github.com/spec/v1\noid sha256:61c9\nsize 4096\n");
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", set);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("f");
    const sheet = await page.textContent('[role="dialog"]');
    for (const word of [name, "Git LFS pointer", `git lfs pull --include ${name}`]) assert.ok(sheet.includes(word), word);
    await page.keyboard.press("Escape");
    await drop(page, "body", [dropped(`hf_sharded_safetensors/${name}`)]);
    await page.waitForFunction(() => !document.querySelector(".status").textContent.includes("danger"));
  });
});
