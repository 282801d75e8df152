// Folders that are dropped by the browser's own drag events. `setInputFiles` and events made by a script have no file
// system entries, which the page reads.

import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, before, test } from "node:test";
import { fixture, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
let top;
before(async () => {
  browser = await launch();
  top = mkdtempSync(join(tmpdir(), "statelens-folders-"));
});
after(async () => {
  await browser.close();
  rmSync(top, { recursive: true });
});

/** Drags files and folders of the disk onto the page, and drops them. */
async function drag(page, ...paths) {
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files: paths, dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"]) {
    await session.send("Input.dispatchDragEvent", { type, x: 300, y: 300, data });
  }
  await session.detach();
}

const makeFolder = (name, files) => {
  for (const [path, bytes] of Object.entries(files)) {
    const place = join(top, name, path);
    mkdirSync(join(place, ".."), { recursive: true });
    writeFileSync(place, bytes);
  }
  return join(top, name);
};

/** Returns an index of shards, and the shards. */
function sharded(count) {
  const files = {};
  const map = {};
  for (let at = 1; at <= count; at++) {
    const number = (of) => String(of).padStart(5, "0");
    const name = `model-${number(at)}-of-${number(count)}.safetensors`;
    files[name] = floats({ [`layers.${at}.weight`]: [at, 1] });
    map[`layers.${at}.weight`] = name;
  }
  files["model.safetensors.index.json"] = JSON.stringify({ metadata: {}, weight_map: map });
  return files;
}

test("a dropped folder yields all files of its subfolders, in any number of batches", async () => {
  // A directory reader returns at most a hundred entries at once.
  const files = sharded(230);
  for (let at = 0; at < 40; at++) files[`notes/deep/${at}/a.txt`] = "x";
  const folder = makeFolder("sharded", files);
  await withPage(browser, async (page) => {
    await drag(page, folder);
    await page.waitForSelector("#work .row");
    await page.waitForFunction(() => document.title.startsWith("model"));
    // No shard is missing.
    assert.equal(await page.$(".notice.danger, .notice.warn"), null);
    await page.fill("#filter", "layers.230.weight");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".insp .vals td");
    assert.match(await page.textContent(".insp .vals"), /230/);
  });
});

test("a dropped run folder opens as a run under its own name (core)", async () => {
  const run = join(top, "model_dir");
  mkdirSync(join(run, "cerebras_logs", "empty"), { recursive: true });
  for (const step of [500, 1000]) copyFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"), join(run, `checkpoint_${step}.mdl`));
  writeFileSync(join(run, "cerebras_logs", "checkpoint_1.mdl"), "not of the run");
  await withPage(browser, async (page) => {
    await drag(page, run);
    await page.waitForSelector("#run .row");
    assert.equal(await page.textContent("#run .top .name"), "model_dir/");
    const names = await page.$$eval("#run .row .ck", (cells) => cells.map((cell) => cell.title));
    assert.deepEqual(names, ["checkpoint_1000.mdl", "checkpoint_500.mdl"]);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#work .row");
  });
});

test("folders and files of any name can be dropped together", async () => {
  const name = "ключи und Gewichte ✓ #1 100% ?";
  const folder = makeFolder(name, { [`${name}/eins/model.safetensors`]: floats({ "ein.weight": [1, 2] }) });
  const empty = join(top, "empty");
  mkdirSync(empty);
  const note = join(top, "note.txt");
  writeFileSync(note, "x");
  await withPage(browser, async (page) => {
    await drag(page, empty, note, folder);
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#work .top .name"), /model\.safetensors$/);
    assert.equal(await page.locator("#work .row:not(.grp)").count(), 1);
  });
});

test("an empty folder is reported, and so is one without checkpoints", async () => {
  const empty = join(top, "nothing");
  mkdirSync(join(empty, "in", "it"), { recursive: true });
  const other = makeFolder("other", { "a.txt": "x", "b/c.txt": "y" });
  await withPage(browser, async (page) => {
    await drag(page, empty);
    await page.waitForSelector("#error");
    assert.match(await page.innerText("#error"), /The dropped items contain no files/);
    await drag(page, other);
    await page.locator("#error", { hasText: "not a checkpoint" }).waitFor();
    assert.doesNotMatch(await page.innerText("#error"), /no files/);
  });
});

test("the page in one file reads a dropped folder, too", async () => {
  // A page from disk can't read file system entries.
  const folder = makeFolder("from disk", { "deep/er/model.safetensors": floats({ "a.weight": [1, 2] }), "note.txt": "x" });
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(pathToFileURL(process.env.STATELENS_SINGLE).href);
    await page.waitForSelector("#start");
    await drag(page, folder);
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#work .top .name"), /model\.safetensors$/);
  } finally {
    await context.close();
  }
});

test("a symbolic link to its own folder does not loop", async () => {
  const folder = makeFolder("round", { "model.safetensors": floats({ w: [1, 2] }) });
  symlinkSync(folder, join(folder, "again"), "dir");
  await withPage(browser, async (page) => {
    await drag(page, folder);
    await page.waitForSelector("#work .row, .dlg");
  });
});
