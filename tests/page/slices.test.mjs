// Slices: typed as for the command, shown, drawn along any two dimensions, and saved as the command exports them.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, becomes, command, fixture, launch, withPage, withSlowPage } from "./harness.mjs";
import { denseCheckpoint, stored } from "./make.mjs";

let browser;
let folder;
let path;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-slices-"));
  const floats = (count) => Buffer.from(Float32Array.from({ length: count }, (_, at) => Math.sin(at) * 9).buffer);
  const half = Array.from({ length: 96 * 32 }, (_, at) => 0x3c00 + ((at * 7919) % 768));
  path = join(folder, "model.safetensors");
  const tensors = {
    "embed.weight": ["F32", [48, 40], floats(48 * 40)],
    "conv.weight": ["F32", [3, 4, 5, 6], floats(360)],
    "half.weight": ["BF16", [96, 32], Buffer.from(Uint16Array.from(half).buffer)],
    "tiny.weight": ["F32", [8, 3], floats(24)],
  };
  writeFileSync(path, stored(tensors));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function open(page, key, file = path) {
  await page.setInputFiles("#choose-files", file);
  // Until then, the rows are those of the previous file.
  await page.waitForFunction((name) => document.title.startsWith(name), basename(file));
  await page.waitForSelector("#work .row");
  await find(page, key);
}

async function find(page, key) {
  await page.fill("#filter", key);
  await page.keyboard.press("Enter");
  await page.waitForFunction((key) => document.querySelector(".insp .wrapkey")?.textContent.includes(key), key);
}

async function type(page, slice) {
  await page.fill("#go-to", slice);
  await page.press("#go-to", "Enter");
}

/** Returns the name and the bytes of the file that a click saves. */
async function saved(page, click) {
  const download = page.waitForEvent("download");
  await click();
  const file = await download;
  return [file.suggestedFilename(), readFileSync(await file.path())];
}

/** Returns the bytes that the command exports. */
function exported(file, key, extension, ...more) {
  const output = join(folder, `exported.${extension}`);
  execFileSync(command, ["export", file, key, output, "--force", ...more]);
  return readFileSync(output);
}

/** Values as the inspector shows them, and as the command prints them. */
const values = (page) => page.$$eval(".vals td", (cells) => cells.map((cell) => cell.title).filter(Boolean));
const shown = (file, key) => {
  const selectedText = execFileSync(command, ["show", "--json", file, key], { encoding: "utf8" });
  return /"values":\[(.*)\]/.exec(selectedText)[1].split(",");
};

test("in a low window the values of a slice are in view once it was typed", () =>
  withPage(
    browser,
    async (page) => {
      await open(page, "embed.weight");
      await page.keyboard.press("Escape");
      await page.waitForSelector("#go-to");
      await page.keyboard.press("g");
      await page.keyboard.type("0:2, -4:");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelectorAll(".vals td[title]").length === 8);
      const [bottom, inspector] = await page.evaluate(() => [".vals", ".insp"].map((name) => document.querySelector(name).getBoundingClientRect().bottom));
      assert.ok(bottom <= inspector, `the values end at ${bottom}, the inspector at ${inspector}`);
    },
    { viewport: { width: 1280, height: 640 } },
  ));

const KINDS = ["npy", "npz", "safetensors", "csv", "raw"];

for (const [key, slice, shape] of [
  ["embed.weight", "0:2, -4:", "[2, 4]"],
  ["embed.weight", "7", "[40]"],
  ["embed.weight", "40::-8, ::13", "[6, 4]"],
  ["conv.weight", "0, :, 3, :", "[4, 6]"],
  ["conv.weight", "1:, ..., 2", "[2, 4, 5]"],
]) {
  test(`${key}[${slice}] is shown and saved as the command does`, () =>
    withPage(browser, async (page) => {
      await open(page, key);
      await type(page, `[${slice}]`);
      await page.waitForSelector("#slice");
      assert.ok((await page.textContent("#slice")).includes(shape));
      await becomes(async () => (await values(page)).slice(0, 8), shown(path, `${key}[${slice}]`).slice(0, 8));
      const save = page.getByRole("group", { name: "save the slice as" });
      for (const kind of KINDS) {
        const [name, bytes] = await saved(page, () => save.getByRole("button", { name: `.${kind}`, exact: true }).click());
        assert.ok(name.startsWith(key) && name.endsWith(`.${kind}`), name);
        assert.ok(bytes.equals(exported(path, `${key}[${slice}]`, kind)), `${kind}: ${bytes.length} bytes`);
      }
      await becomes(() => page.locator("#taking").count(), 0);
      await page.click("#slice-whole");
      await becomes(() => page.locator("#slice").count(), 0);
      await becomes(async () => (await values(page)).length, 60);
    }));
}

test("the shown Python code reads the slice in each library, and equals the command's", () =>
  withPage(browser, async (page) => {
    const code = () => page.locator("#code pre").textContent();
    for (const [file, key, libraries] of [
      [path, "conv.weight", ["safetensors", "numpy.memmap", "jax"]],
      [fixture("torch/zip_training_ckpt.pt"), "model.emb.weight", ["torch"]],
      [fixture("hdf5/contiguous.h5"), "f4", ["h5py"]],
    ]) {
      await open(page, key, file);
      const whole = await code();
      for (const typed of ["0", "1:, ::-1"]) {
        await type(page, `[${typed}]`);
        await page.waitForSelector("#slice");
        const slice = await page.locator("#slice .m").first().textContent();
        for (const library of libraries) {
          const button = page.locator("#code").getByRole("button", { name: library, exact: true });
          if (await button.count()) await button.click();
          const wanted = execFileSync(command, ["show", file, key + slice, `--code=${library}`], { encoding: "utf8" });
          await becomes(async () => `${await code()}\n`, wanted.replaceAll(file, file.split("/").at(-1)));
        }
      }
      await page.click("#slice-whole");
      const button = page.locator("#code").getByRole("button", { name: libraries[0], exact: true });
      if (await button.count()) await button.click();
      await becomes(code, whole);
    }
  }));

test("invalid slices are reported, and an index selects a value", () =>
  withPage(browser, async (page) => {
    await open(page, "embed.weight");
    for (const [typed, selectedText] of [
      ["[99]", /index 99 is outside of 48/],
      [":, :, :", /more parts than the tensor has dimensions/],
      ["50:", /has no values/],
      ["a:", /not a whole number/],
      ["1, 2, 3", /2 numbers/],
    ]) {
      await type(page, typed);
      await page.locator(".goto + [role=alert], .goto [role=alert]").filter({ hasText: selectedText }).waitFor();
    }
    await type(page, "3, 5");
    await page.waitForSelector(".vals .here");
    assert.equal(await page.locator("#slice").count(), 0);
  }));

test("dtypes that NumPy lacks are saved as float32 there, and unchanged elsewhere", () =>
  withPage(browser, async (page) => {
    await open(page, "half.weight");
    await type(page, "3:5, ::-2");
    const save = page.getByRole("group", { name: "save the slice as" });
    for (const kind of KINDS) {
      const more = kind.startsWith("np") ? ["--as", "float32"] : [];
      const [, bytes] = await saved(page, () => save.getByRole("button", { name: `.${kind}`, exact: true }).click());
      assert.ok(bytes.equals(exported(path, "half.weight[3:5, ::-2]", kind, ...more)), kind);
    }
  }));

test("slices of chunked and quantised tensors match the command (core)", () =>
  withPage(browser, async (page) => {
    for (const [name, key] of [
      ["cerebras/v2.10.0/gpt_small.mdl", "model.model.wpe.weight"],
      ["gguf/quants.gguf", "q.Q4_0"],
    ]) {
      const file = fixture(name);
      await open(page, key, file);
      await type(page, "1:3, ::-7");
      await becomes(async () => (await values(page)).slice(0, 6), shown(file, `${key}[1:3, ::-7]`).slice(0, 6));
      const save = page.getByRole("group", { name: "save the slice as" });
      for (const kind of ["npz", "csv"]) {
        const [, bytes] = await saved(page, () => save.getByRole("button", { name: `.${kind}`, exact: true }).click());
        assert.ok(bytes.equals(exported(file, `${key}[1:3, ::-7]`, kind)), `${name} ${kind}`);
      }
    }
  }));

const selectedText = (page) => page.textContent("#selected-value");

test("any two dimensions can be drawn, at an index of the others", () =>
  withPage(browser, async (page) => {
    await open(page, "conv.weight");
    await page.keyboard.press("e");
    await page.waitForSelector("#overview canvas");
    const size = () => page.$$eval("#overview canvas", (all) => all.flatMap((canvas) => [canvas.height, canvas.width]));
    assert.deepEqual(await size(), [5, 6]);
    await page.selectOption("#matrix-dim-rows", "1");
    await becomes(size, [4, 6]);
    await page.locator('[aria-label="Slider of dimension 2"]').fill("3");
    await page.waitForFunction(() => /\[0, :, 3, :\]/.test(document.querySelector(".exp .main h2").textContent));
    const values = () => page.$$eval(".grid tbody td", (cells) => cells.map((cell) => cell.title));
    const wanted = shown(path, "conv.weight[0, :, 3, :]");
    await becomes(values, wanted);
    await page.keyboard.press("Escape");
    await page.locator(".grid tbody tr").nth(2).locator("td").nth(4).click();
    await page.waitForFunction((value) => document.querySelector("#selected-value").textContent.startsWith("[0, 2, 3, 4]"), wanted[16]);
    const [, bytes] = await saved(page, () => page.getByRole("button", { name: ".npz", exact: true }).click());
    assert.ok(bytes.equals(exported(path, "conv.weight[0, :, 3, :]", "npz")));
    // Swaps rows and columns.
    await page.selectOption("#matrix-dim-rows", "3");
    await becomes(size, [6, 4]);
    assert.deepEqual(await page.$$eval(".matrix-bar select", (all) => all.slice(0, 2).map((one) => one.value)), ["3", "1"]);
    await page.selectOption("#matrix-dim-columns", "0");
    await becomes(size, [6, 3]);
    await page.waitForFunction(() => /\[:, 0, 0, :\]|\[:, 2, 3, :\]|\[:, \d, \d, :\]/.test(document.querySelector(".exp .main h2").textContent));
    assert.equal(await page.locator("#kernels").count(), 0, "these are not kernels");
  }));

test("a slice is drawn, and saved as requested", () =>
  withPage(browser, async (page) => {
    await open(page, "conv.weight");
    await type(page, "1:, :, ::2, -3:");
    await page.waitForSelector("#slice");
    await page.keyboard.press("Escape");
    await page.keyboard.press("e");
    await page.waitForSelector("#overview canvas");
    assert.equal(await page.textContent(".exp .main h2"), "[1, 0, 0:5:2, 3:6]");
    await page.locator('[aria-label="Index of dimension 0, of 3"]').fill("2");
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => document.querySelector(".exp .main h2").textContent.startsWith("[2, 0, "));
    await becomes(async () => (await selectedText(page)).startsWith("[2, 0, 0, 3] "), true);
    const save = async (name, kind) => {
      const group = page.getByRole("group", { name });
      return (await saved(page, () => group.getByRole("button", { name: `.${kind}`, exact: true }).click()))[1];
    };
    for (const kind of KINDS) {
      assert.ok((await save("save the slice as", kind)).equals(exported(path, "conv.weight[1:, :, ::2, -3:]", kind)), kind);
    }
    assert.ok((await save("save the drawn slice as", "npy")).equals(exported(path, "conv.weight[2, 0, ::2, -3:]", "npy")));
    // Another slice can be typed here, and an index outside of it is still selected.
    await page.keyboard.press("g");
    await page.keyboard.type("[0, :, 3, :]");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector(".exp .main h2").textContent === "[0, :, 3, :]");
    await page.keyboard.press("g");
    await page.fill("#go-to", "2, 3, 4, 5");
    await page.keyboard.press("Enter");
    await becomes(async () => (await selectedText(page)).startsWith("[2, 3, 4, 5] "), true);
    assert.equal(await page.textContent(".exp .main h2"), "[2, :, 4, :]");
  }));

test("saving a slice does not affect the progress of a running write", () =>
  withSlowPage(browser, { streams: [40] }, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    const large = join(folder, "dense.safetensors");
    denseCheckpoint(large, 8, 1);
    await open(page, "layers.3.weight", large);
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    const written = page.waitForEvent("download", { predicate: (it) => /\.pt$/.test(it.suggestedFilename()), timeout: 120_000 });
    await page.click("#write");
    await page.waitForSelector("#convert-run");
    await page.getByRole("button", { name: "Browse meanwhile" }).click();
    await page.evaluate(() => {
      window.percents = [];
      const status = document.querySelector(".status");
      const note = () => {
        const found = /writing (\d+) %/.exec(status.textContent);
        if (found) window.percents.push(Number(found[1]));
      };
      new MutationObserver(note).observe(status, { subtree: true, childList: true, characterData: true });
    });
    await type(page, "::2, ::3");
    const save = page.getByRole("group", { name: "save the slice as" });
    for (const kind of ["npz", "safetensors"]) {
      const slice = page.waitForEvent("download", { predicate: (it) => it.suggestedFilename().endsWith(kind), timeout: 120_000 });
      await save.getByRole("button", { name: `.${kind}`, exact: true }).click();
      await page.waitForSelector("#taking");
      const bytes = readFileSync(await (await slice).path());
      assert.ok(bytes.equals(exported(large, "layers.3.weight[::2, ::3]", kind)), kind);
    }
    assert.match(await page.textContent(".status"), /writing \d+ %/, "it is still written");
    const output = join(folder, "expected.pt");
    execFileSync(command, ["convert", large, output, "--to", "torch", "--lossy", "--force"], { stdio: "pipe" });
    assert.ok(readFileSync(await (await written).path()).equals(readFileSync(output)));
    const percents = await page.evaluate(() => window.percents);
    assert.deepEqual(percents, [...percents].sort((one, other) => one - other), "it never goes back");
    assert.ok(new Set(percents).size > 3, String(percents));
  }));

for (const [colorScheme, width, height] of [["light", 1440, 900], ["dark", 1440, 900], ["light", 390, 844], ["dark", 390, 844]]) {
  test(`slices have no accessibility violations at ${width}, ${colorScheme}`, () =>
    withPage(
      browser,
      async (page) => {
        const rules = ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"];
        const facts = async () => width < 1000 && (await page.getByRole("tab", { name: /Tensor/ }).click());
        await open(page, "conv.weight");
        await facts();
        await type(page, "1:, :, 3, -3:");
        await page.waitForSelector("#slice");
        await page.locator("#slice").scrollIntoViewIfNeeded();
        assert.deepEqual(await accessibility(page, "slice", rules), []);
        await page.keyboard.press("Escape");
        await page.keyboard.press("e");
        await page.waitForSelector("#overview canvas");
        assert.deepEqual(await accessibility(page, "slice drawn", rules), []);
        // Few values are drawn as squares.
        const { width: wide, height: high } = await page.locator("#overview canvas").boundingBox();
        assert.ok(Math.abs(wide / 3 - high / 4) < 1, `${wide} x ${high}`);
        const left = async (selector) => Math.round((await page.locator(selector).first().boundingBox()).x);
        assert.equal(await left("#overview"), await left(".overview .profile"), "the profile is aligned with the columns");
        await page.keyboard.press("Escape");
        if (width < 1000) await page.getByRole("tab", { name: /Keys/ }).click();
        await find(page, "tiny.weight");
        await facts();
        await page.click("#expand");
        await page.waitForSelector("#overview canvas");
        assert.deepEqual(await accessibility(page, "few values", rules), []);
        const few = await page.locator("#overview canvas").boundingBox();
        assert.ok(Math.abs(few.width / 3 - few.height / 8) < 1, JSON.stringify(few));
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
      },
      { colorScheme, viewport: { width, height } },
    ));
}
