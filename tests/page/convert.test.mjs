// Converting in the page writes the same bytes as the command; cancelling leaves no files.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { command, drop, dropped, fixture, inWorker, launch, withPage } from "./harness.mjs";
import { floats, sparseCheckpoint } from "./make.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-page-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Returns the bytes that the command writes. */
function byCommand(name, target, ...options) {
  const output = join(folder, `${Math.random()}.out`);
  execFileSync(command, ["convert", fixture(name), output, "--to", target, ...options], { stdio: "pipe" });
  return readFileSync(output);
}

/** Removes the save dialog: the page then writes to the private file system, and downloads the result. */
async function withoutDialog(page) {
  await page.addInitScript(() => delete window.showSaveFilePicker);
  await page.reload();
  await page.waitForSelector("#start");
}

async function plan(page, name, target, ...choices) {
  await drop(page, "body", [dropped(name)]);
  // The rows of the file before stay until the next one is open.
  await page.locator("#work .top .name", { hasText: basename(name) }).waitFor();
  await page.waitForSelector("#work .row");
  await page.keyboard.press("c");
  for (const choice of [target, ...choices]) await page.getByRole("radio", { name: choice }).first().click();
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

/** Writes, and returns the downloaded bytes. */
async function download(page) {
  return (await saved(page)).bytes;
}

/** Like `download`, but returns the name of the file as well. */
async function saved(page) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
  await page.waitForSelector("#convert-done");
  assert.match(await page.textContent("#read-back"), /Keys, dtypes, shapes, plain values and ties are as planned/);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

test("a file of one array converts by target, key, dtype and name alone (core)", () =>
  withPage(browser, async (page) => {
    await withoutDialog(page);
    const name = "numpy/F3d.npy";
    await drop(page, "body", [dropped(name)]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    // The key is the name of the file, so that there is a plan at once.
    await page.waitForSelector("#write:not([disabled])");
    assert.equal(await page.getByRole("textbox", { name: "Add prefix" }).inputValue(), "F3d");
    const fields = await page.$$eval("#convert .formside :is(input, textarea)", (fields) => fields.length);
    assert.equal(fields, 2, "the key and the name of the output");
    await page.getByRole("radio", { name: "safetensors" }).click();
    await page.waitForSelector(".plan:not(.late)");
    await page.waitForSelector("#write:not([disabled])");
    assert.ok((await download(page)).equals(byCommand(name, "safetensors", "--prefix", "F3d")));
  }));

test("a prefix that some keys lack is refused, with a button that excludes them", () =>
  withPage(browser, async (page) => {
    await drop(page, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl")]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
    await page.getByRole("textbox", { name: "Remove prefix" }).fill("model.");
    await page.click("#keep-prefixed");
    await page.waitForSelector(".plan:not(.late)");
    assert.equal(await page.getByRole("textbox", { name: "Include" }).inputValue(), "model.*");
    assert.equal(await page.locator("#keep-prefixed").count(), 0);
  }));

test("a prefix that some keys lack is removed where it is", () =>
  withPage(browser, async (page) => {
    await drop(page, "body", [{ name: "m.safetensors", bytes: floats({ "model.a": [1], "model.b.model.c": [2], "lm_head.weight": [3] }) }]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
    await page.getByRole("textbox", { name: "Remove prefix" }).fill("model.");
    await page.click("#strip-present");
    await page.waitForSelector(".plan:not(.late)");
    assert.equal(await page.getByRole("textbox", { name: "Rename" }).inputValue(), "^model\\.=>");
    const changed = await page.$$eval("#preview tbody tr", (rows) => rows.map((row) => row.cells[2].title));
    assert.deepEqual(changed.sort(), ["a", "b.model.c"]);
  }));

for (const [name, target, choices, options] of [
  ["cerebras/v2.10.0/gpt_small.mdl", "torch", ["PyTorch"], []],
  ["cerebras/v2.10.0/gpt_small.pt", "cerebras", ["Cerebras"], []],
  ["cerebras/v2.10.0/seed.mdl", "torch", ["PyTorch"], []],
  ["torch/zip_training_ckpt.pt", "cerebras", ["Cerebras", "LZ4"], ["--compress", "lz4"]],
  ["cerebras/v2.10.0/gpt_small.mdl", "cerebras", ["Cerebras", "bf16"], ["--cast", "bfloat16"]],
]) {
  test(`${name} converts to ${choices.join(", ")} as by the command`, async () => {
    await withPage(browser, async (page) => {
      await withoutDialog(page);
      await plan(page, name, ...choices);
      const expected = byCommand(name, target, "--lossy", ...options);
      const exact = (await page.textContent(".plan .lab")).includes("exactly");
      if (exact) {
        const size = (await page.textContent(".plan .big")).replace(/\D/g, "");
        assert.equal(Number(size), expected.length, "the plan's size");
      }
      const written = await download(page);
      assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
    });
  });
}

/** Removes the save dialog and the private file system, as in some private windows, for the page and its worker. */
async function withoutPrivateFiles(page) {
  await page.route("**/boot.js", async (route) => {
    const response = await route.fetch();
    const refuse = "navigator.storage.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));";
    await route.fulfill({ response, body: `${refuse}\n${await response.text()}` });
  });
  await withoutDialog(page);
}

for (const [name, target, choices, options] of [
  ["cerebras/v2.10.0/gpt_small.mdl", "cerebras", ["Cerebras", "bf16"], ["--cast", "bfloat16"]],
  ["torch/zip_training_ckpt.pt", "cerebras", ["Cerebras", "LZ4"], ["--compress", "lz4"]],
  ["cerebras/v2.10.0/gpt_small.mdl", "torch", ["PyTorch", "bf16"], ["--cast", "bfloat16"]],
]) {
  test(`without private files ${name} converts to ${choices.join(", ")}, and the result opens`, async () => {
    const work = async (page) => {
      await withoutPrivateFiles(page);
      await plan(page, name, ...choices);
      const written = await download(page);
      assert.ok(written.equals(byCommand(name, target, "--lossy", ...options)));
      assert.match(await page.textContent("#convert-done .verdict"), /here the page has no private storage/);
      await page.click("#open-result");
      await page.waitForFunction((was) => !document.title.startsWith(was), name.split("/").at(-1));
      await page.waitForSelector("#work .row");
    };
    await withPage(browser, work);
  });
}

test("without private files the output is limited to the browser's memory, with an error", async () => {
  const path = join(folder, "too_large.pt");
  sparseCheckpoint(path, 4, 150_000_000);
  const work = async (page) => {
    await withoutPrivateFiles(page);
    await page.setInputFiles("#choose-files", path);
    await page.waitForFunction(() => document.title.startsWith("too_large.pt"));
    await page.keyboard.press("c");
    for (const choice of ["Cerebras", "bf16"]) await page.getByRole("radio", { name: choice }).first().click();
    await page.waitForFunction(() => document.querySelector(".plan:not(.late) .kv")?.textContent.includes("bf16"));
    await page.click("#write");
    await page.getByText("it can write at most 512 MB").first().waitFor({ timeout: 120_000 });
  };
  await withPage(browser, work);
});

test("selects the keys that the command selects, and the result opens (core)", async () => {
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    const name = "cerebras/v2.10.0/gpt_small.mdl";
    await plan(page, name, "PyTorch");
    await page.locator(".states").getByRole("checkbox", { name: "optimizer" }).first().uncheck();
    await page.waitForFunction(() => document.querySelector("#write")?.disabled === false &&
      document.querySelector(".cmdline .m")?.textContent.includes("--states"));
    const [, states] = (await page.textContent(".cmdline .m")).match(/--states (\S+)/);
    assert.ok(states.split(",").includes("model") && !states.includes("optimizer"), states);
    const written = await saved(page);
    const expected = byCommand(name, "torch", "--lossy", "--states", states);
    assert.ok(written.bytes.equals(expected));
    // The name contains the selected states.
    assert.match(written.name, /^gpt_small_.*\.pt$/);
    await page.click("#open-result");
    await page.waitForFunction((name) => document.title.startsWith(name), written.name);
    assert.equal(await page.getByRole("treeitem", { name: "optimizer" }).count(), 0);
  });
});

test("keys are renamed, nested and cast by key, as the table and the command say (core)", async () => {
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    const name = "cerebras/v2.10.0/gpt_small.mdl";
    await plan(page, name, "PyTorch");
    const field = (label) => page.locator(`.field:has(.lab:text-is("${label}")) textarea, .field:has(.lab:text-is("${label}")) input`);
    await field("Include").fill("model.*\nglobal step, which does not exist");
    await page.waitForSelector('.refused:has-text("global step, which does not exist")');
    await field("Include").fill("model.*");
    await field("Remove prefix").fill("model.");
    await field("Rename").fill("\\.layers\\.(\\d+)\\.=>.h.$1.\nbias$=>b");
    await field("Add prefix").fill("net.");
    await field("Rules").fill("*.b=bfloat16");
    await page.check("#nest");
    await page.waitForFunction(() => document.querySelector("#write")?.disabled === false &&
      document.querySelector(".cmdline .m")?.textContent.includes("--nest"));
    const rows = await page.$$eval("#preview tbody tr", (rows) =>
      rows.map((row) => [row.cells[0].title, row.cells[2].title, row.cells[3].textContent]));
    const bias = rows.find(([, key]) => key.endsWith(".b"));
    assert.ok(bias && bias[0].endsWith(".bias") && bias[2] === "bfloat16", JSON.stringify(bias));
    assert.ok(rows.some(([old, key]) => old.startsWith("model.") && key.startsWith("net.")));
    const written = await download(page);
    const expected = byCommand(name, "torch", "--lossy", "--select", "model.*", "--strip-prefix", "model.",
      "--rename", "\\.layers\\.(\\d+)\\.=>.h.$1.", "--rename", "bias$=>b", "--prefix", "net.", "--nest", "--cast", "*.b=bfloat16");
    assert.ok(written.equals(expected));
  });
});

test("the file that the save dialog chose holds the same bytes", async () => {
  await withPage(browser, async (page) => {
    // The dialog can't be operated by a test; the private file system returns the same kind of handle.
    await page.addInitScript(() => {
      window.showSaveFilePicker = async ({ suggestedName }) =>
        (await navigator.storage.getDirectory()).getFileHandle(suggestedName, { create: true });
    });
    await page.reload();
    await page.waitForSelector("#start");
    const name = "cerebras/v2.10.0/gpt_small.mdl";
    await plan(page, name, "PyTorch");
    await page.click("#write");
    await page.waitForSelector("#convert-done");
    const base64 = await page.evaluate(async () => {
      const root = await navigator.storage.getDirectory();
      const file = await (await root.getFileHandle("gpt_small.pt")).getFile();
      return btoa(Array.from(new Uint8Array(await file.arrayBuffer()), (byte) => String.fromCharCode(byte)).join(""));
    });
    assert.ok(Buffer.from(base64, "base64").equals(byCommand(name, "torch", "--lossy")));
  });
});

/** Returns the names of temporary files in the private file system. */
const temporary = (page) =>
  page.evaluate(async () => {
    const root = await navigator.storage.getDirectory();
    const names = [];
    try {
      for await (const name of (await root.getDirectoryHandle("statelens")).keys()) names.push(name);
    } catch {
      // Without the folder, nothing was written.
    }
    return names;
  });

test("outputs stay until the user frees them, because downloads have no end that the page could see", async () => {
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    await plan(page, "cerebras/v2.10.0/gpt_small.mdl", "Cerebras", "bf16");
    const first = await download(page);
    assert.equal(await page.locator(".kept-outputs").last().getAttribute("data-bytes"), String(first.length));
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    // Opening another file removes nothing.
    await plan(page, "torch/zip_training_ckpt.pt", "Cerebras", "LZ4");
    const second = await download(page);
    assert.equal((await temporary(page)).length, 2);
    assert.equal(await page.getAttribute("#convert-done ~ footer .kept-outputs", "data-bytes"), String(first.length + second.length));
    await page.locator(".free-outputs").last().click();
    await page.waitForSelector(".kept-outputs", { state: "detached" });
    assert.deepEqual(await temporary(page), []);
  });
});

test("an output that the browser has no room for is refused before it is written", async () => {
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    await inWorker(page, () => {
      navigator.storage.estimate = async () => ({ quota: 1_000_000, usage: 900_000 });
    });
    await plan(page, "cerebras/v2.10.0/gpt_small.mdl", "Cerebras", "bf16");
    assert.doesNotMatch(await page.textContent(".checks"), /can.t check/);
    await page.click("#write");
    await page.waitForSelector("#convert-failed");
    assert.match(await page.textContent("#convert-failed"), /Could not be written.*needs .*lets this page store 100 kB/s);
    assert.deepEqual(await temporary(page), []);
  });
});

test("cancel stops a conversion and removes what it wrote", async () => {
  const path = join(folder, "large.pt");
  sparseCheckpoint(path, 4, 150_000_000);
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    await page.setInputFiles("#choose-files", path);
    await page.waitForFunction(() => document.title.startsWith("large.pt"));
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "Cerebras" }).first().click();
    await page.getByRole("radio", { name: "bf16" }).first().click();
    await page.waitForFunction(() => document.querySelector(".plan:not(.late) .kv")?.textContent.includes("bf16"));
    await page.click("#write");
    await page.waitForSelector("#convert-run");
    await page.waitForFunction(() => !/written0 B/.test(document.querySelector(".runhead")?.textContent ?? "written0 B"));
    assert.equal((await temporary(page)).length, 1);
    await page.click("#cancel");
    await page.waitForSelector("#write");
    assert.match(await page.textContent("#cancelled"), /Nothing was written/);
    assert.deepEqual(await temporary(page), []);
    // The conversion can be started again, and continues without the sheet.
    await page.click("#write");
    await page.waitForSelector("#convert-run");
    await page.getByRole("button", { name: "Browse meanwhile" }).first().click();
    await page.waitForFunction(() => /writing \d+ %/.test(document.querySelector(".status").textContent));
    await page.keyboard.press("c");
    await page.click("#cancel");
    await page.waitForSelector("#write");
    assert.deepEqual(await temporary(page), []);
  });
});

test("lossy casts are written only on request, as the command writes them", async () => {
  const source = join(folder, "large_numbers.safetensors");
  writeFileSync(source, floats({ w: [1, 1e30, -2] }));
  const output = join(folder, "falsified.pt");
  execFileSync(command, ["convert", source, output, "--to", "torch", "--cast", "float16", "--lossy"], { stdio: "pipe" });
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    await page.setInputFiles("#choose-files", source);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.getByRole("radio", { name: "f16" }).last().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    const downloads = [];
    page.on("download", (download) => downloads.push(download));
    await page.click("#write:not([disabled])");
    await page.waitForSelector("#falsify");
    assert.match(await page.textContent(".sheet"), /Casting loses numbers/);
    assert.equal(downloads.length, 0);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#falsify")]);
    await page.waitForSelector("#convert-done");
    assert.deepEqual(readFileSync(await download.path()), readFileSync(output));
  });
});

test("casts show the range of values that were read", async () => {
  const source = join(folder, "known_numbers.safetensors");
  writeFileSync(source, floats({ b: [0.5, -1], w: [1, 70000, -2] }));
  const notes = async (page) => {
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.getByRole("radio", { name: "f16" }).last().click();
    await page.locator(".plan:not(.late)", { hasText: "float32 becomes float16" }).waitFor();
    const text = await page.textContent(".plan");
    await page.keyboard.press("Escape");
    return text;
  };
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", source);
    await page.waitForSelector("#work .row");
    assert.doesNotMatch(await notes(page), /max \|x\| is/);
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    assert.match(await notes(page), /float32 becomes float16: max \|x\| is 70000; 1 tensor has numbers that do not fit/);
  });
});

test("incomplete checkpoints are written only on request, as the command writes them", async () => {
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    const name = "cerebras/errors/no_success.mdl";
    await drop(page, "body", [dropped(name)]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    const losses = page.locator(".loss", { hasText: "not written to its end" });
    assert.equal(await losses.count(), 1);
    assert.ok(await page.isDisabled("#write"), "losses need confirmation");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    assert.ok((await download(page)).equals(byCommand(name, "torch", "--lossy")));
  });
});

test("leaving out the optimizer warns that training can't resume", async () => {
  await withPage(browser, async (page) => {
    await plan(page, "cerebras/v2.10.0/gpt_small.mdl", "PyTorch");
    const dialog = page.locator("[role=dialog]", { hasText: /raining can[\u2019']t resume/ });
    assert.equal(await dialog.count(), 0);
    await page.locator(".states").getByRole("checkbox", { name: "optimizer" }).first().uncheck();
    await dialog.waitFor();
  });
});

test("tied tensors are untied on request, as the command unties them", async () => {
  const name = "torch/zip_tied.pt";
  const expected = byCommand(name, "safetensors", "--untie", "--lossy");
  assert.notDeepEqual(expected, byCommand(name, "safetensors", "--lossy"), "there is something to untie");
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    await plan(page, name, "safetensors");
    await page.check("#untie");
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    assert.deepEqual(await download(page), expected);
  });
});
