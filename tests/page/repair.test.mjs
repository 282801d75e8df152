// Upgrading, repairing and adding a dataloader state, as the commands do; subsets of the states.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { command, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-repair-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Returns the bytes that a command writes. `words` takes the output path and returns the arguments. */
function byCommand(words) {
  const output = join(folder, `${Math.random()}.mdl`);
  execFileSync(command, words(output), { stdio: "pipe" });
  return readFileSync(output);
}

/** Opens files in a page without a save dialog, and runs `work`. */
function opened(open, work) {
  return withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await open(page);
    await page.waitForSelector("#work .row");
    await work(page);
  });
}

const openedOne = (name, work) => opened((page) => drop(page, "body", [dropped(name)]), work);

/** Opens the findings, and returns their text. */
async function findings(page) {
  await page.keyboard.press("f");
  await page.waitForSelector(".sheet.findings");
  return page.textContent(".sheet.findings .sheetbody");
}

/** Writes, and returns the name and the bytes of the output. */
async function write(page) {
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
  await page.waitForSelector("#convert-done");
  assert.match(await page.textContent("#read-back"), /Keys, dtypes, shapes, plain values and ties are as planned/);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

/** Waits until the plan is complete and its command contains these words. */
const planned = (page, ...words) =>
  page.waitForFunction(
    (words) => {
      const text = document.querySelector(".cmdline .m")?.textContent ?? "";
      return document.querySelector(".plan:not(.late)") && words.every((word) => text.includes(word));
    },
    words,
  );

function same(written, expected) {
  assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
}

for (const [name, version] of [
  ["cerebras/compat/synthetic_1.7_fixed.mdl", "0.1"],
  ["cerebras/errors/v03_from_201.mdl", "0.3"],
  ["cerebras/v2.4.0/gpt_small.mdl", "0.4"],
]) {
  test(`${name}, of format ${version}, is upgraded as the command does`, async () => {
    await openedOne(name, async (page) => {
      const text = await findings(page);
      assert.match(text, new RegExp(`Format ${version.replace(".", "\\.")}, used by releases?`));
      assert.match(text, /Its spec needs no repair/);
      await page.locator(".sheet.findings").getByRole("button", { name: "Upgrade to 0.5" }).first().click();
      await planned(page, "upgrade", "--to 0.5");
      assert.match(await page.textContent(".changes"), new RegExp(`format ${version}, .* becomes 0\\.5`));
      const written = await write(page);
      const stem = name.split("/").pop().replace(/\.mdl$/, "");
      assert.equal(written.name, `${stem}_0.5.mdl`);
      same(written.bytes, byCommand((output) => ["upgrade", fixture(name), "-o", output]));
    });
  });
}

test("a checkpoint of format 0.5 is written for older releases, from the convert sheet", async () => {
  const name = "cerebras/v2.10.0/gpt_small.mdl";
  await openedOne(name, async (page) => {
    assert.match(await findings(page), /Write 0\.4 for older releases/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("c");
    await page.locator("#tasks").getByRole("radio", { name: "Write 0.4" }).click();
    await planned(page, "upgrade", "--to 0.4");
    const written = await write(page);
    assert.equal(written.name, "gpt_small_0.4.mdl");
    same(written.bytes, byCommand((output) => ["upgrade", fixture(name), "--to", "0.4", "-o", output]));
  });
});

test("a spec is repaired as the command does, with and without the upgrade (core)", async () => {
  const name = "cerebras/compat/synthetic_1.7.mdl";
  const stdout = execFileSync(command, ["fix-checkpoint-spec", fixture(name), "--fixed_checkpoint_path", join(folder, "said.mdl")], { encoding: "utf8" });
  const repairs = [...stdout.matchAll(/^repaired {2}(.*)$/gm)].map((match) => match[1]).map((text) => text.replace("was missing", "is missing").replace(" was ", " is ").replace(" became ", " becomes "));
  assert.ok(repairs.length > 3, stdout);
  await openedOne(name, async (page) => {
    const text = await findings(page);
    assert.ok(text.includes(`The spec needs ${repairs.length} repairs`), text);
    for (const repair of repairs) assert.ok(text.includes(repair), repair);
    await page.getByRole("button", { name: "Fix the spec" }).first().click();
    assert.ok(await page.isChecked("#fix-upgrade"));
    await planned(page, "fix-checkpoint-spec", "--upgrade");
    const shown = await page.$$eval(".changes li", (lines) => lines.map((line) => line.textContent));
    assert.deepEqual(shown.slice(0, repairs.length), repairs);
    assert.match(shown[repairs.length], /format 0\.1, .* becomes 0\.5/);
    const upgraded = await write(page);
    assert.equal(upgraded.name, "synthetic_1.7_fixed.mdl");
    const fix = (...more) => byCommand((output) => ["fix-checkpoint-spec", fixture(name), "--fixed_checkpoint_path", output, ...more]);
    same(upgraded.bytes, fix("--upgrade"));
    await page.getByRole("button", { name: "Convert again" }).first().click();
    await page.uncheck("#fix-upgrade");
    await page.waitForFunction(() => {
      const text = document.querySelector(".cmdline .m")?.textContent ?? "";
      return text.includes("fix-checkpoint-spec") && !text.includes("--upgrade");
    });
    const plain = await write(page);
    assert.equal(plain.name, "synthetic_1.7_fixed.mdl");
    same(plain.bytes, fix());
  });
});

test("a tied weight missing under all its keys is named", async () => {
  // Renames the dataset of a weight that the spec has under two keys.
  const bytes = readFileSync(fixture("cerebras/compat/synthetic_1.7.mdl"));
  const [from, to] = ["model.lm_head.weight", "model.lm_heax.weight"].map((text) => Buffer.from(text));
  let found = 0;
  for (let at = bytes.indexOf(from); at >= 0; at = bytes.indexOf(from, at + 1)) {
    to.copy(bytes, at);
    found += 1;
  }
  assert.ok(found > 0);
  await opened((page) => drop(page, "body", [{ name: "both_gone.mdl", bytes }]), async (page) => {
    const text = await findings(page);
    assert.match(text, /The spec can't be repaired/);
    assert.match(text, /The weight model\.embedding_layer\.word_embeddings\.weight is missing from the file, and so is model\.lm_head\.weight/);
    assert.equal(await page.getByRole("button", { name: "Fix the spec" }).count(), 0);
  });
});

const states = () => readdirSync(fixture("cerebras/compat/dl_state")).map((name) => `cerebras/compat/dl_state/${name}`);
const source = "cerebras/v2.10.0/gpt_small.mdl";
const withState = (...more) =>
  byCommand((output) => ["convert-dataloader-state", "-c", fixture(source), "-w", fixture("cerebras/compat/dl_state"), "-o", output, ...more]);

test("a dataloader's state dropped with its checkpoint is added as by the command", async () => {
  await opened((page) => drop(page, "body", [dropped(source), ...states().map(dropped)]), async (page) => {
    assert.match(await page.title(), /gpt_small\.mdl/);
    const text = await findings(page);
    assert.match(text, /3 workers at step 100, 1,230 samples streamed/);
    assert.match(text, /would replace the state dataloader of the checkpoint/);
    await page.getByRole("button", { name: "Add the dataloader state" }).first().click();
    await page.fill("#seed", "42");
    await planned(page, "convert-dataloader-state", "-s 42", "-d map");
    assert.match(await page.textContent(".loss"), /The existing state dataloader is replaced/);
    assert.ok(await page.isDisabled("#write"));
    const map = await write(page);
    assert.equal(map.name, "gpt_small_dataloader.mdl");
    same(map.bytes, withState("-s", "42"));
    await page.getByRole("button", { name: "Convert again" }).first().click();
    await page.getByRole("radio", { name: "iterable" }).first().click();
    await page.getByRole("radio", { name: "0.5, releases" }).first().click();
    await planned(page, "-d iterable", "--to 0.5");
    same((await write(page)).bytes, withState("-d", "iterable", "--to", "0.5"));
  });
});

test("a folder with a checkpoint and the folder of its state files opens as one", async () => {
  const run = join(folder, "run");
  mkdirSync(run);
  copyFileSync(fixture(source), join(run, "checkpoint_100.mdl"));
  cpSync(fixture("cerebras/compat/dl_state"), join(run, "iter_state"), { recursive: true });
  await opened((page) => page.setInputFiles("#choose-folder", run), async (page) => {
    await findings(page);
    await page.getByRole("button", { name: "Add the dataloader state" }).first().click();
    await planned(page, "-w run/iter_state");
    same((await write(page)).bytes, withState());
  });
});

test("mismatched state files are named, and can be dropped again", async () => {
  await openedOne(source, async (page) => {
    const files = states().map(dropped);
    const worker = files.findIndex(({ name }) => name.includes("worker_1_step_100"));
    const wrong = files.with(worker, { ...files[worker], bytes: Buffer.from("many\n") });
    await drop(page, "body", wrong);
    await page.waitForFunction(() => document.querySelector(".status")?.textContent.includes("warning"));
    const text = await findings(page);
    assert.match(text, /The state of the dataloader can't be read/);
    assert.match(text, /data_iter_state_file_worker_1_step_100\.txt/);
    assert.equal(await page.getByRole("button", { name: "Add the dataloader state" }).count(), 0);
    await page.keyboard.press("Escape");
    await drop(page, "body", files);
    // A page that is loading has no status bar.
    await page.waitForFunction(() => {
      const status = document.querySelector(".status")?.textContent;
      return status?.includes("opened") && !status.includes("warning");
    });
    assert.match(await findings(page), /3 workers at step 100/);
  });
});

test("a subset of the states keeps `__` keys and is named as trainers name it", async () => {
  await openedOne(source, async (page) => {
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "Cerebras .mdl" }).first().click();
    const boxes = await page.$$eval(".states label", (labels) => labels.map((label) => label.querySelector(".t").textContent));
    assert.ok(boxes.includes("__metadata__"), boxes.join());
    assert.ok(await page.locator(".states").getByRole("checkbox", { name: "__metadata__" }).first().isDisabled());
    const left = boxes.filter((name) => !name.startsWith("__") && name !== "model" && name !== "global_step");
    for (const name of left) await page.uncheck(`.states label:has(.t:text-is("${name}")) input`);
    await page.waitForFunction(() => /--states \S+/.test(document.querySelector(".cmdline .m")?.textContent) && document.querySelector(".plan:not(.late)"));
    const [, chosen] = (await page.textContent(".cmdline .m")).match(/--states (\S+)/);
    const written = await write(page);
    assert.equal(written.name, `${chosen.replaceAll(",", "_")}_gpt_small.mdl`);
    same(written.bytes, byCommand((output) => ["convert", fixture(source), output, "--states", chosen]));
    await page.click("#open-result");
    await page.waitForFunction((name) => document.title.startsWith(name), written.name);
    const tops = await page.$$eval('[role="treeitem"][aria-level="1"]', (items) => items.map((item) => item.textContent));
    assert.ok(tops.some((text) => text.includes("__metadata__")), tops.join());
    assert.ok(!tops.some((text) => text.includes("optimizer")), tops.join());
  });
});
