// Run folders: the page lists what `statelens runs` lists, and reads no more of the files than necessary.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, command, dropped, drop, fixture, inWorker, launch, withPage } from "./harness.mjs";
import { floats, safetensors } from "./make.mjs";

let browser;
let top;
before(async () => {
  browser = await launch();
  top = mkdtempSync(join(tmpdir(), "statelens-run-"));
});
after(async () => {
  await browser.close();
  rmSync(top, { recursive: true });
});

/** Creates a model_dir: real checkpoints, a subset, a truncated and an unfinished checkpoint, leftovers, an index. */
function runFolder(name, index) {
  const folder = join(top, name);
  mkdirSync(join(folder, "cerebras_logs"), { recursive: true });
  const copy = (from, to) => copyFileSync(fixture(from), join(folder, to));
  for (const step of [500, 1000, "1000_20240131_235959", 1500]) copy("cerebras/v2.10.0/gpt_small.mdl", `checkpoint_${step}.mdl`);
  copy("cerebras/v2.10.0/gpt_small_bf16.mdl", "checkpoint_2000.mdl");
  copy("cerebras/v2.10.0/seed.mdl", "model_checkpoint_1500.mdl");
  copy("cerebras/errors/no_success.mdl", "checkpoint_2500.mdl");
  copy("cerebras/v2.10.0/gpt_small.mdl", "checkpoint_3000.mdl");
  truncateSync(join(folder, "checkpoint_3000.mdl"), 100_000);
  copy("cerebras/v2.10.0/seed.mdl", "checkpoint_1000_20240231_000000.mdl");
  copy("cerebras/v2.10.0/seed.mdl", "trainer_state_1500.mdl");
  writeFileSync(join(folder, "checkpoint_3500.mdl.3f9a1c07.tmp"), "left");
  writeFileSync(join(folder, "cerebras_logs", "run.log"), "not of the run");
  if (index !== undefined) writeFileSync(join(folder, "checkpoints_index.yaml"), index);
  return folder;
}

const runs = (folder) => execFileSync(command, ["runs", folder, "--json"], { encoding: "utf8" });

/** Opens the folder, as the dialog does. */
async function choose(page, folder) {
  await page.setInputFiles("#choose-folder", folder);
  await page.waitForSelector("#run .row");
  await page.waitForSelector("#save-list:not([disabled])", { state: "attached" });
}

async function list(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-list")]);
  return readFileSync(await download.path(), "utf8");
}

/** Returns the rows: file, step, kind, and whether they are flagged. */
const rows = (page) =>
  page.$$eval("#run .row", (rows) =>
    rows.map((row) => ({
      name: row.querySelector(".ck").title,
      step: row.querySelector(".cp").textContent,
      kind: row.querySelector(".cd > span:last-child").textContent,
      flagged: row.querySelector(".cd :is(.fi.warn, .fi.danger)") !== null,
      lens: row.querySelector(".lens") !== null,
    })),
  );

const selected = (page) => page.$eval("#run .row.sel .ck", (cell) => cell.title);

/** Moves the selection up to a row, key by key; the page handles each key in a later frame. */
async function goUp(page, name) {
  const names = (await rows(page)).map((row) => row.name);
  const keys = names.indexOf(await selected(page)) - names.indexOf(name);
  assert.ok(names.includes(name) && keys >= 0, `${keys} rows up to ${name}`);
  for (let key = 0; key < keys; key++) await page.keyboard.press("k");
  await becomes(() => selected(page), name);
}

for (const [name, index] of [
  ["without an index", undefined],
  ["with an index", "- model_dir/checkpoint_500.mdl\n- model_dir/checkpoint_1500.mdl\n- model_dir/checkpoint_9.mdl\n"],
]) {
  test(`a run folder ${name} is listed as the command lists it`, async () => {
    const folder = runFolder(name.replaceAll(" ", "_"), index);
    const expected = runs(folder);
    const json = JSON.parse(expected);
    await withPage(browser, async (page) => {
      await choose(page, folder);
      assert.equal(await list(page), expected);
      const shown = await rows(page);
      assert.deepEqual(shown.map((row) => row.name).sort(), json.files.map((file) => file.name).sort());
      // In the trainer's order, the newest first.
      const full = json.files.filter((file) => file.what === "checkpoint").map((file) => file.name);
      assert.deepEqual(shown.filter((row) => row.kind === "full").map((row) => row.name), full.reverse());
      assert.deepEqual(shown.filter((row) => row.lens).map((row) => row.name), [json.latest]);
      assert.equal(await page.textContent("#latest"), json.latest);
      const row = (name) => shown.find((row) => row.name === name);
      assert.deepEqual([row("model_checkpoint_1500.mdl").kind, row("model_checkpoint_1500.mdl").step], ["subset", "1,500"]);
      assert.deepEqual([row("checkpoint_3500.mdl.3f9a1c07.tmp").kind, row("checkpoint_3500.mdl.3f9a1c07.tmp").flagged], ["leftover", true]);
      for (const file of json.files.filter((file) => file.wrong)) assert.ok(row(file.name).flagged, file.name);
      // One is unfinished, one is truncated, one lacks a state that the others have.
      assert.equal(json.files.filter((file) => file.wrong).length, 3);
      if (index) {
        const text = await page.textContent("#index");
        for (const name of [...json.only_index, ...json.only_folder.slice(0, 8)]) assert.ok(text.includes(name), `${name} in ${text}`);
      }
      // The plan of pruning equals the command's.
      const plan = JSON.parse(execFileSync(command, ["prune", folder, "--keep", "2", "--every", "1000", "--json"], { encoding: "utf8" }));
      await page.fill("#prune label:nth-of-type(1) input", "2");
      await page.fill("#prune label:nth-of-type(2) input", "1000");
      const pruned = await page.$$eval("#run .row", (rows) => rows.filter((row) => row.dataset.plan === "prune").map((row) => row.querySelector(".ck").title));
      assert.deepEqual(pruned.sort(), plan.files.sort());
    });
  });
}

test("keys open a checkpoint and compare two; Escape leads back (core)", async () => {
  const folder = runFolder("by_keys");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    await page.keyboard.press("End");
    const names = (await rows(page)).map((row) => row.name);
    await becomes(() => selected(page), names.at(-1));
    await goUp(page, "checkpoint_1500.mdl");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#work .top .name"), /checkpoint_1500\.mdl$/);
    await page.keyboard.press("Escape");
    await page.waitForSelector("#run .row");
    await becomes(() => selected(page), "checkpoint_1500.mdl");
    await page.keyboard.press("d");
    await goUp(page, "checkpoint_2000.mdl");
    await page.keyboard.press("d");
    await page.waitForSelector("#save-report:not([disabled])");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-report")]);
    const expected = (() => {
      try {
        return execFileSync(command, ["diff", join(folder, "checkpoint_1500.mdl"), join(folder, "checkpoint_2000.mdl"), "--json"], { encoding: "utf8" });
      } catch (differ) {
        assert.equal(differ.status, 1);
        return differ.stdout;
      }
    })();
    assert.equal(readFileSync(await download.path(), "utf8"), expected);
  });
});

test("Back leads from a checkpoint to its run folder, and Forward to the checkpoint", async () => {
  const folder = runFolder("by_history");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    await page.click("#open-step");
    await page.waitForSelector("#work .row");
    await page.goBack();
    await page.waitForSelector("#run .row");
    await page.goForward();
    await page.waitForSelector("#work .row");
  });
});

const mainButton = (page) => page.textContent("#open-step .cut");

test("the main button opens the newest sound checkpoint, next to a note on the damaged one that the trainer would load", async () => {
  const folder = runFolder("damaged_newest");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    assert.equal(await page.textContent("#latest"), "checkpoint_3000.mdl");
    assert.equal(await mainButton(page), "Open 1,500 \u00b7 newest whole");
    assert.equal(await page.textContent("#show-loaded"), "Step 3,000 is damaged, and the trainer would resume from it");
    assert.equal(await selected(page), "checkpoint_1500.mdl");
    const plan = JSON.parse(execFileSync(command, ["prune", folder, "--keep", "1", "--json"], { encoding: "utf8" }));
    assert.deepEqual(plan.unsound.map((one) => one.name).sort(), ["checkpoint_2000.mdl", "checkpoint_2500.mdl", "checkpoint_3000.mdl"]);
    await page.fill("#prune label:nth-of-type(1) input", "1");
    const pruned = await page.$$eval("#run .row", (rows) => rows.filter((row) => row.dataset.plan === "prune").map((row) => row.querySelector(".ck").title));
    assert.deepEqual(pruned.sort(), plan.files.sort());
    const sound = execFileSync(command, ["latest", folder, "--sound"], { encoding: "utf8", stdio: "pipe" });
    assert.match(sound, /checkpoint_1500\.mdl\n$/);
    assert.match(await page.textContent("#autoload code"), /^statelens latest \S+ --sound$/);
    // Both buttons are shown in full, side by side or stacked.
    for (const [width, height] of [[390, 844], [800, 900], [1440, 900]]) {
      await page.setViewportSize({ width, height });
      const fits = () =>
        page.evaluate(() => {
          const [main, loaded] = ["#open-step", "#show-loaded"].map((id) => document.querySelector(id).getBoundingClientRect());
          const text = document.querySelector("#open-step .cut");
          const apart = main.left >= loaded.right || main.top >= loaded.bottom;
          return apart && text.scrollWidth <= text.clientWidth && Math.max(main.right, loaded.right) <= innerWidth && main.height < 60;
        });
      await becomes(fits, true);
    }
    // The button shows why the checkpoint is damaged.
    await page.click("#show-loaded");
    await page.waitForSelector("#run .insp .warnline");
    // The selection has changed, but the main button still opens the checkpoint that it names.
    assert.equal(await selected(page), "checkpoint_3000.mdl");
    assert.equal(await mainButton(page), "Open 1,500 \u00b7 newest whole");
    await page.click("#open-step");
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#work .top .name"), /checkpoint_1500\.mdl$/);
  });
});

test("Enter opens the newest sound checkpoint unless another is selected", async () => {
  const folder = runFolder("by_enter");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#work .top .name"), /checkpoint_1500\.mdl$/);
  });
});

test("there is one button if the newest checkpoint is sound; if none is, it opens the one that the trainer would load", async () => {
  const folder = smallRun("sound");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    assert.equal(await mainButton(page), "Open 30 \u00b7 newest whole");
    assert.equal(await page.$("#show-loaded"), null);
    assert.equal(await page.$("#none-sound"), null);
    assert.match(await page.textContent("#autoload code"), /^statelens latest \S+$/);
    for (const step of [10, 20, 30]) truncateSync(join(folder, `checkpoint_${step}.mdl`), 60);
    await choose(page, folder);
    await becomes(() => mainButton(page), "Open 30 \u00b7 the trainer would resume from it");
    assert.equal(await page.textContent("#none-sound"), "no checkpoint is whole");
    assert.equal(await page.$("#show-loaded"), null);
    await page.click("#open-step");
    await page.waitForSelector("#error");
  });
});

test("a damaged index is reported, and no checkpoint is marked as loaded", async () => {
  const folder = runFolder("damaged_index", "a: {b: c}\n");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    assert.equal(await page.$("#run .row .lens"), null);
    assert.match(await page.textContent("#run .insp"), /Autoload picks nothing/);
    assert.match(await page.textContent("#run .insp"), /line 1 is not understood/);
  });
});

test("a run of another trainer is not called Cerebras's, and keys of a flat state dict are not states (core)", async () => {
  const run = join(top, "trainer");
  for (const step of [100, 200]) {
    mkdirSync(join(run, `checkpoint-${step}`), { recursive: true });
    writeFileSync(join(run, `checkpoint-${step}`, "model.safetensors"), safetensors(["lm_head.weight", "model.norm.weight", "model.layers.0.norm.weight"]));
  }
  await withPage(browser, async (page) => {
    await choose(page, run);
    assert.equal(await page.textContent("#run .badge"), "run folder");
    await page.waitForFunction(() => document.querySelector("#run .row .cv").textContent === "2 states");
    assert.match(await page.innerText("#run .insp dl"), /states\s+lm_head, model\s*$/);
    assert.doesNotMatch(await page.textContent("#autoload"), /timestamp/);
  });
});

test("the latest and the best checkpoint are those that the trainer's files name", async () => {
  const run = join(top, "named");
  for (const step of [900, 1000, 1100]) {
    mkdirSync(join(run, `checkpoint-${step}`), { recursive: true });
    writeFileSync(join(run, `checkpoint-${step}`, "model.safetensors"), safetensors(["w"]));
    writeFileSync(join(run, `checkpoint-${step}`, "trainer_state.json"), '{"best_model_checkpoint": "out/checkpoint-900"}');
  }
  for (const latest of ["checkpoint-1000", "checkpoint-700"]) {
    writeFileSync(join(run, "latest"), latest);
    const expected = runs(run);
    await withPage(browser, async (page) => {
      await choose(page, run);
      assert.equal(await list(page), expected);
      assert.equal(await page.textContent("#latest"), latest);
      await page.fill("#prune label:nth-of-type(1) input", "1");
      const plan = JSON.parse(execFileSync(command, ["prune", run, "--keep", "1", "--json"], { encoding: "utf8" }));
      await becomes(() => page.$$eval("#run [data-plan=prune]", (rows) => rows.map((row) => row.dataset.name).sort().join()), plan.files.sort().join());
      assert.match(await page.textContent("#run .row[data-name=checkpoint-900] .cq"), /best/);
    });
  }
});

test("a single checkpoint opens, two are listed as a run", async () => {
  await withPage(browser, async (page) => {
    const one = (name) => ({ ...dropped("cerebras/v2.10.0/seed.mdl"), name });
    await drop(page, "body", [one("checkpoint_1.mdl")]);
    await page.waitForSelector("#work .row");
    await drop(page, "body", [one("checkpoint_1.mdl"), one("checkpoint_2.mdl")]);
    await page.waitForSelector("#run .row");
    assert.deepEqual((await rows(page)).map((row) => row.name), ["checkpoint_2.mdl", "checkpoint_1.mdl"]);
  });
});

test("listing a run does not read weights", async () => {
  const folder = join(top, "large");
  mkdirSync(folder);
  // Checkpoints of 64 MB with a structure of a few bytes.
  const size = 64 << 20;
  const head = Buffer.from(JSON.stringify({ w: { dtype: "F32", shape: [size / 4], data_offsets: [0, size] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  for (const step of [1, 2]) {
    const path = join(folder, `checkpoint_${step}.mdl`);
    writeFileSync(path, Buffer.concat([length, head]));
    truncateSync(path, 8 + head.length + size);
  }
  await withPage(browser, async (page) => {
    let read = 0;
    await inWorker(page, () => {
      self.bytesRead = 0;
      const original = FileReaderSync.prototype.readAsArrayBuffer;
      FileReaderSync.prototype.readAsArrayBuffer = function (blob) {
        self.bytesRead += blob.size;
        return original.call(this, blob);
      };
    });
    await choose(page, folder);
    for (const worker of page.workers()) read += await worker.evaluate(() => self.bytesRead ?? 0);
    assert.ok(read > 0 && read < 8 << 20, `${read} bytes were read of ${2 * size}`);
    assert.equal(await list(page), runs(folder));
  });
});

/** Creates a run of three small checkpoints. */
function smallRun(name) {
  const folder = join(top, name);
  mkdirSync(folder);
  for (const [step, values] of [[10, [3, 4]], [20, [6, 8]], [30, [NaN, 1]]]) {
    writeFileSync(join(folder, `checkpoint_${step}.mdl`), floats({ "model.h.0.w": values }));
  }
  return folder;
}

const KEPT = "statelens-values.json";

/** Returns the file that the button saves. */
async function savedValues(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-values")]);
  assert.equal(download.suggestedFilename(), KEPT);
  return readFileSync(await download.path(), "utf8");
}

test("values of a run are saved, and loaded from that file for unchanged checkpoints", async () => {
  const folder = smallRun("kept");
  const kept = join(folder, KEPT);
  const norms = (text) => JSON.parse(text).values.map(({ by, checkpoints }) => [by, checkpoints.map(({ groups }) => groups[0].norm)]);
  await withPage(browser, async (page) => {
    await choose(page, folder);
    assert.equal(await page.$("#save-values"), null);
    await page.click("#read-run");
    const text = await savedValues(page);
    assert.deepEqual(norms(text), [["state", [5, 10, 1]], ["role", [5, 10, 1]]]);
    // The command writes the same file, except for more exact times, and accepts the page's.
    const values = (...more) => execFileSync(command, ["runs", folder, "--values", "--json", ...more], { encoding: "utf8" });
    values("--keep");
    const cut = (text) => text.replace(/("modified":"\d+\.\d{3})\d*/g, "$1");
    assert.equal(cut(readFileSync(kept, "utf8")), text);
    const other = text.replaceAll('"norm":5.0', '"norm":7.5');
    writeFileSync(kept, other);
    assert.equal(JSON.parse(values()).checkpoints[0].groups[0].norm, 7.5);
    // The page accepts it as well, and reads nothing.
    await choose(page, folder);
    assert.match(await page.textContent("#kept"), /^Values of 3 checkpoints are from statelens-values\.json\.$/);
    assert.equal(await page.$("#read-run"), null);
    assert.match(await page.getAttribute("#run-values .chart", "aria-label"), /NaN or infinite: 1 at 30/);
    assert.equal(await savedValues(page), other);
    // Only a changed checkpoint is read again.
    writeFileSync(join(folder, "checkpoint_20.mdl"), floats({ "model.h.0.w": [1, 2, 2] }));
    await choose(page, folder);
    assert.match(await page.textContent("#kept"), /Values of 2 checkpoints .* 1 checkpoint was changed since/);
    assert.match(await page.textContent("#read-run"), /^Read values of 1 checkpoint,/);
    await page.click("#read-run");
    await page.waitForSelector("#read-run", { state: "detached" });
    assert.deepEqual(norms(await savedValues(page)), [["state", [7.5, 3, 1]], ["role", [7.5, 3, 1]]]);
    // A damaged file is reported, and all checkpoints are read.
    writeFileSync(kept, text.slice(0, 200));
    await choose(page, folder);
    assert.match(await page.textContent("#kept"), /statelens-values\.json is not used: this is not a file of kept values/);
    assert.match(await page.textContent("#read-run"), /^Read values of 3 checkpoints,/);
  });
});

for (const [colorScheme, width, height] of [["light", 1440, 900], ["dark", 390, 844]]) {
  test(`the steps of the values chart are aligned with the timeline, and loss scales are hidden at first, at ${width}`, () =>
    withPage(
      browser,
      async (page) => {
        const folder = join(top, `axis_${width}`);
        mkdirSync(folder);
        for (const [step, values] of [[100, [3, 4]], [250, [6, 8]], [600, [5, 12]]]) {
          writeFileSync(join(folder, `checkpoint_${step}.mdl`), floats({ "model.h.0.w": values, "grad_scaler.scale": [65_536] }));
        }
        writeFileSync(join(folder, "checkpoint_700.mdl.3f9a1c07.tmp"), "left");
        await choose(page, folder);
        // A small screen has a tab for the chart.
        if (width < 720) await page.getByRole("tab", { name: "Chart" }).click();
        await page.click("#read-run");
        await page.waitForSelector("#read-run", { state: "detached" });
        const middle = async (locator) => {
          const { x, width } = await locator.boundingBox();
          return x + width / 2;
        };
        const dots = page.locator("#run-values .chart circle");
        await becomes(() => dots.count(), 3);
        for (const [at, step] of [100, 250, 600].entries()) {
          const mark = page.locator(".timeline g", { has: page.locator("title", { hasText: `checkpoint_${step}.mdl` }) }).locator("rect").first();
          const [above, below] = [await middle(mark), await middle(dots.nth(at))];
          assert.ok(Math.abs(above - below) < 1, `${step}: ${above}, ${below}`);
        }
        for (const step of ["0", "200", "600"]) {
          const label = (where) => page.locator(`${where} text[text-anchor=middle]`).getByText(step, { exact: true });
          const [above, below] = [await middle(label(".timeline")), await middle(label("#run-values .chart"))];
          assert.ok(Math.abs(above - below) < 1.5, `${step}: ${above}, ${below}`);
        }
        const lines = () => page.getAttribute("#run-values .chart", "aria-label");
        assert.match(await lines(), /model: 5 at 100, 13 at 600/);
        assert.doesNotMatch(await lines(), /grad_scaler/);
        assert.match(await page.textContent("#left-out"), /^grad_scaler holds single numbers, such as a loss scale/);
        await page.getByRole("group", { name: "Groups" }).getByRole("button", { name: "grad_scaler" }).click();
        await becomes(async () => /grad_scaler: 65,536 at 100/.test(await lines()), true);
        assert.equal(await page.locator("#left-out").count(), 0);
      },
      { colorScheme, viewport: { width, height } },
    ));
}

test("a checkpoint with NaN is not the newest good one once its values were read, and keeps that when it is opened", async () => {
  const folder = join(top, "with_nan");
  mkdirSync(folder);
  for (const [step, values] of [[100, [3, 4]], [200, [6, NaN]]]) {
    writeFileSync(join(folder, `checkpoint_${step}.mdl`), floats({ "model.h.0.w": values }));
  }
  await withPage(browser, async (page) => {
    await choose(page, folder);
    assert.equal(await mainButton(page), "Open 200 \u00b7 newest whole");
    await page.click("#read-run");
    await becomes(() => mainButton(page), "Open 100 \u00b7 newest without NaN");
    assert.equal(await page.getAttribute('#run .row[data-name="checkpoint_200.mdl"]', "data-grade"), "not finite");
    assert.match(await page.textContent('#run .row[data-name="checkpoint_200.mdl"] .why'), /1 value is NaN or infinite/);
    assert.match(await page.textContent("#show-loaded"), /Step 200 has values that are not finite/);
    await page.dblclick('#run .row[data-name="checkpoint_200.mdl"]');
    await page.waitForSelector('#grade[data-grade="not finite"]');
    assert.match(await page.textContent("#work .notice"), /1 value is NaN or infinite/);
  });
});

test("Back leads from a checkpoint to its run with its values; Forward and Back keep the run", async () => {
  const folder = smallRun("history");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    await page.click("#read-run:not([disabled])");
    await page.waitForSelector("#run-values .chart");
    await page.waitForSelector("#read-run", { state: "detached" });
    await page.locator("#run .row").first().dblclick();
    await page.waitForSelector("#work .row");
    await page.goBack();
    await page.waitForSelector("#run .row");
    assert.equal(await page.locator("#run-values .chart").count(), 1, "the values are kept");
    assert.equal(await page.locator("#read-run").count(), 0);
    await page.goForward();
    await page.waitForSelector("#work .row");
    await page.goBack();
    await page.waitForSelector("#run .row");
    await page.goBack();
    await page.waitForSelector("#start");
    await page.goForward();
    await page.waitForSelector("#run .row");
    assert.equal(await page.locator("#run-values .chart").count(), 1, "the values come back, too");
    await page.goForward();
    await page.waitForSelector("#work .row");
  });
});

for (const width of [768, 1024]) {
  test(`at ${width} pixels the table has grades and the prune plan`, async () => {
    const folder = runFolder(`columns_${width}`);
    await withPage(browser, async (page) => {
      await choose(page, folder);
      await page.fill("#prune label:nth-of-type(1) input", "1");
      const shown = (selector) => page.$$eval(selector, (all) => all.filter((it) => it.checkVisibility()).length);
      await page.waitForSelector("#run .row[data-plan=prune]");
      assert.ok((await shown("#run .row .cd .fi")) > 2, "marks");
      assert.deepEqual(await page.$$eval("#run .row[data-plan=prune] .cq", (all) => all.map((it) => it.innerText.trim()).filter((text) => text !== "prune")), []);
      const cut = await page.$$eval("#run :is(.head, .row) > .cq", (all) => all.filter((it) => it.scrollWidth > it.clientWidth + 1).map((it) => it.innerText));
      assert.deepEqual(cut, []);
      const lines = await page.$$eval("#run .head > .c", (all) => all.filter((it) => it.offsetHeight > 24).map((it) => it.innerText));
      assert.deepEqual(lines, [], "names of columns in several lines");
    }, { viewport: { width, height: 900 } });
  });
}

test("on a phone, the folder of a run can be checked", async () => {
  const folder = smallRun("checked");
  await withPage(browser, async (page) => {
    await choose(page, folder);
    await page.locator("#run").getByRole("button", { name: "Check folder" }).click();
    await page.waitForSelector("#folder-verdict");
  }, { viewport: { width: 390, height: 844 } });
});
