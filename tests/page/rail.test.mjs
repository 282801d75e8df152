// The list of dropped checkpoints marks damaged ones, opens each and compares two; buttons lead back.

import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-rail-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const whole = dropped("torch/zip_training_ckpt.pt");
const example = dropped("cerebras/v2.10.0/gpt_small.mdl");

/** Three checkpoints, the middle one cut short. */
const three = [
  { ...whole, name: "a.pt" },
  { name: "b.pt", bytes: whole.bytes.subarray(0, 900) },
  { ...example, name: "c.mdl" },
];

const states = (page) => page.$$eval("#rail li", (lines) => lines.map((line) => [line.querySelector(".n").textContent, line.dataset.state, line.classList.contains("at")]));

test("several files are listed: which is open, which is damaged; a click or key opens each (core)", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", three);
    await page.waitForSelector("#work #rail");
    await becomes(() => states(page), [
      ["a.pt", "whole", true],
      ["b.pt", "damaged", false],
      ["c.mdl", "whole", false],
    ]);
    assert.equal(await page.textContent("#show-rail"), "1 of 3");
    await page.click('#rail [data-name="c.mdl"] button');
    await page.waitForSelector('#work[data-name="c.mdl"]');
    await page.keyboard.press("]");
    await page.waitForSelector('#work[data-name="a.pt"]');
    await page.keyboard.press("]");
    await page.waitForSelector("#error #rail");
    assert.deepEqual(await states(page), [
      ["a.pt", "whole", false],
      ["b.pt", "damaged", true],
      ["c.mdl", "whole", false],
    ]);
    assert.doesNotMatch(await page.textContent("#error"), /none of them/);
    await page.keyboard.press("[");
    await page.waitForSelector('#work[data-name="a.pt"]');
  });
});

test("two ticked checkpoints are compared, and a button leads back (core)", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", three);
    await page.waitForSelector("#work #rail");
    assert.equal(await page.locator("#compare-ticked").count(), 0);
    for (const name of ["a.pt", "c.mdl"]) await page.check(`#rail [data-name="${name}"] input`);
    await page.click("#compare-ticked");
    await page.waitForSelector("#compare .row");
    assert.deepEqual(await page.$$eval("#compare .ab .name", (names) => names.map((name) => name.textContent)), ["a.pt", "c.mdl"]);
    await page.click("#back");
    await page.waitForSelector("#work #rail");
  });
});

test("two dropped files offer to compare them", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", [three[0], three[2]]);
    await page.waitForSelector("#work #rail");
    await page.click("#compare-ticked");
    await page.waitForSelector("#compare .row");
  });
});

test("checkpoints with equal names are distinguished by folder in list and header", async () => {
  const run = join(folder, "out");
  for (const step of [100, 20]) {
    mkdirSync(join(run, `part-${step}`), { recursive: true });
    copyFileSync(fixture("torch/zip_training_ckpt.pt"), join(run, `part-${step}`, "pytorch_model.bin"));
  }
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", run);
    await page.waitForSelector("#work #rail");
    const names = await page.$$eval("#rail .n", (names) => names.map((name) => name.textContent));
    assert.deepEqual(names, ["part-20/pytorch_model.bin", "part-100/pytorch_model.bin"]);
    await page.click('#rail [data-name*="part-100"] button');
    await page.waitForSelector('#work[data-name="part-100/pytorch_model.bin"]');
  });
});

test("a button leads from a step back to its run, and the logo to the start screen", async () => {
  const run = join(folder, "run");
  mkdirSync(run);
  for (const step of [500, 1000]) copyFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"), join(run, `checkpoint_${step}.mdl`));
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", run);
    await page.waitForSelector("#run .row");
    await page.click("#open-step:not([disabled])");
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#back"), /run/);
    await page.click("#back");
    await page.waitForSelector("#run .row");
    await page.click("#open-step:not([disabled])");
    await page.waitForSelector("#work .row");
    await page.click(".home");
    await page.waitForSelector("#start");
  });
});

test("a set of shards shows its folder and number", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", fixture("hf_sharded_safetensors"));
    await page.waitForSelector("#work .row");
    assert.equal(await page.textContent("#work .top .name"), "hf_sharded_safetensors/");
    assert.match(await page.textContent("#shards"), /^\d+ shards$/);
    // No file has the name of the set, so the inspector and the sheets show the folder, too.
    assert.equal(await page.textContent(".insp .wrapkey"), "hf_sharded_safetensors/");
    for (const key of ["c", "f", "v", "s"]) {
      await page.keyboard.press(key);
      await page.waitForSelector('[role="dialog"]');
      assert.match(await page.innerText('[role="dialog"] header'), /hf_sharded_safetensors\//, key);
      await page.keyboard.press("Escape");
      await page.waitForSelector('[role="dialog"]', { state: "detached" });
    }
  });
});

test("one read serves verifying, the table, the findings and the summary (core)", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", { ...example, mimeType: "", buffer: readFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl")) });
    await page.waitForSelector("#work .row");
    await page.keyboard.press("v");
    assert.match(await page.textContent("#verify-begin"), /^Read everything · /);
    await page.click("#verify-begin");
    await page.waitForSelector("#verify-done");
    await page.keyboard.press("Escape");
    // The table shows the values, and nothing is left to scan.
    await page.waitForSelector("#work .head .wsd");
    assert.match(await page.textContent("#scanned"), /all values are read/);
    await page.keyboard.press("f");
    await page.waitForSelector('[role="dialog"]');
    assert.match(await page.textContent('[role="dialog"] footer'), /and all values/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("s");
    await page.waitForSelector('[role="dialog"] .content');
    assert.equal(await page.locator("#read-all").count(), 0);
  });
});

test("a malicious pickle is never marked as good: the list has the grade of each file (core)", async () => {
  await withPage(browser, async (page) => {
    const files = ["builtins_eval.pt", "builtins_exec_proto0.pt"].map((name) => dropped(`attacks/${name}`));
    await drop(page, "body", [...files, { ...whole, name: "whole.pt" }]);
    await page.waitForSelector("#rail");
    await becomes(async () => (await states(page)).map(([name, state]) => [name, state]), [
      ["builtins_eval.pt", "dangerous"],
      ["builtins_exec_proto0.pt", "dangerous"],
      ["whole.pt", "whole"],
    ]);
    assert.equal(await page.locator("#rail li[data-state=dangerous] .fi.good").count(), 0);
    assert.match(await page.textContent("#rail .pane-h"), /2 dangerous/);
    assert.match(await page.getAttribute('#rail li[data-name="builtins_eval.pt"] button', "title"), /dangerous: .*eval/);
    await page.click('#rail [data-name="builtins_eval.pt"] button');
    await page.waitForSelector('#grade[data-grade="dangerous"]');
  });
});

test("a list of many files is filtered and sorted, and shares the left pane with the tree", async () => {
  await withPage(browser, async (page) => {
    const files = ["d", "b", "f", "a", "e", "c"].map((name) => ({ ...whole, name: `${name}.pt` }));
    files.push({ name: "z.pt", bytes: whole.bytes.subarray(0, 900) });
    await drop(page, "body", files);
    await page.waitForSelector("#work #rail");
    const names = () => page.$$eval("#rail .n", (names) => names.map((name) => name.textContent));
    await becomes(names, ["a.pt", "b.pt", "c.pt", "d.pt", "e.pt", "f.pt", "z.pt"]);
    await becomes(() => page.locator('#rail [data-name="z.pt"] .why').count(), 1);
    await page.getByLabel("Sort files").selectOption("grade");
    await becomes(async () => (await names())[0], "z.pt");
    await page.getByLabel("Filter files").fill("B.P");
    await becomes(names, ["b.pt"]);
    assert.equal(await page.locator(".tree .lines").isVisible(), false);
    await page.getByRole("tab", { name: "Tree" }).first().click();
    await page.waitForSelector(".tree .lines li");
    assert.equal(await page.locator("#rail").count(), 0);
    await page.getByRole("tab", { name: "Files" }).first().click();
    await page.waitForSelector("#rail");
  });
});
