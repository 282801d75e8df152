// Quantised weights: shown as tensors of numbers with their stored parts, written as numbers, compared with the original.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, becomes, command, drop, dropped, fixture, launch, withPage } from "./harness.mjs";
import { stored } from "./make.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-quantised-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const byCommand = (...words) => execFileSync(command, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });

async function open(page, name) {
  await page.setInputFiles("#choose-folder", fixture(name));
  await page.waitForSelector("#work .row");
}

/** Selects the row of a key. */
async function select(page, key) {
  await page.fill("#filter", key);
  await page.locator(`#work .row[data-key="${key}"]`).click();
  await page.waitForSelector(`.insp[data-key="${key}"] #statistics`);
}

/** Returns the labels and values of a list of facts. */
const facts = (page, list) => page.$$eval(`${list} dt`, (all) => Object.fromEntries(all.map((it) => [it.textContent, it.nextElementSibling.textContent])));

for (const [scheme, part] of [
  ["gptq_4bit", "qweight"],
  ["awq_gemm", "qweight"],
  ["bnb_4bit", "absmax"],
  ["ct_pack_w4_sym", "weight_packed"],
  ["fp8_block", "weight_scale_inv"],
  ["mxfp4_moe", "blocks"],
  ["mlx_affine", "scales"],
]) {
  test(`a packed weight is a tensor of numbers with its parts: ${scheme}`, () =>
    withPage(browser, async (page) => {
      const name = `quantized/${scheme}`;
      const expected = JSON.parse(readFileSync(fixture(`${name}.expected.json`), "utf8")).entries;
      await open(page, name);
      const { key, shape } = expected.find((entry) => entry.shape.length > 1);
      await select(page, key);
      const parts = await page.$$eval("#quantised [data-part]", (all) => all.map((it) => it.dataset.part));
      assert.ok(parts.some((it) => it.includes(part)), parts.join());
      const shown = await facts(page, ".insp .facts");
      assert.equal(shown.shape.replaceAll(/[^0-9,]/g, ""), shape.join(","));
      // Its values are those of the command.
      const file = fixture(join(name, readdirSync(fixture(name)).find((it) => it.endsWith(".safetensors"))));
      const slice = shape.map((_, dim) => (dim + 1 < shape.length ? "0" : ":4")).join(", ");
      const { values } = JSON.parse(byCommand("show", file, `${key}[${slice}]`, "--json")).entries[0];
      await page.waitForSelector(".insp .vals td");
      const cells = await page.$$eval(".insp .vals td", (all) => all.slice(0, 4).map((it) => Number(it.title.replace("\u2212", "-"))));
      values.forEach((value, at) => assert.ok(Math.abs(value - cells[at]) <= 1e-6 * Math.abs(value), `${cells}, expected ${values}`));
    }));
}

for (const dtype of ["bf16", "f16", "f32"]) {
  test(`quantised weights are written as numbers, as by the command: ${dtype}`, () =>
    withPage(browser, async (page) => {
      const name = "quantized/gptq_4bit";
      await page.addInitScript(() => delete window.showSaveFilePicker);
      await page.reload();
      await page.waitForSelector("#start");
      await open(page, name);
      await page.keyboard.press("c");
      await page.getByRole("radio", { name: "PyTorch" }).first().click();
      await page.getByRole("radiogroup", { name: /^Dequantise/ }).getByRole("radio", { name: dtype, exact: true }).click();
      await page.waitForFunction(() => /--dequantize/.test(document.querySelector(".cmdline")?.textContent));
      await page.waitForSelector(".plan:not(.late)");
      const notes = await page.textContent(".checks");
      assert.match(notes, /Dequantised to .*GPTQ, 4 bits/);
      assert.match(notes, /Left out \d+ stored tensors?: .*qweight/);
      for (const box of await page.$$(".loss input")) await box.check();
      await page.waitForSelector("#write:not([disabled])");
      const long = { bf16: "bfloat16", f16: "float16", f32: "float32" }[dtype];
      const output = join(mkdtempSync(join(folder, "out-")), await page.inputValue("[aria-label='File name']"));
      execFileSync(command, ["convert", fixture(name), output, "--dequantize", long, "--to", "torch", "--lossy"], { stdio: "pipe" });
      const first = page.waitForEvent("download", (it) => !it.suggestedFilename().endsWith(".json"));
      await page.click("#write");
      const written = readFileSync(await (await first).path());
      assert.ok(written.equals(readFileSync(output)), `${written.length} bytes`);
    }));
}

test("without the choice, the parts are kept as they are stored", () =>
  withPage(browser, async (page) => {
    const name = "quantized/gptq_4bit";
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await open(page, name);
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    const output = join(mkdtempSync(join(folder, "out-")), await page.inputValue("[aria-label='File name']"));
    execFileSync(command, ["convert", fixture(name), output, "--to", "torch", "--lossy"], { stdio: "pipe" });
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
    assert.ok(readFileSync(await download.path()).equals(readFileSync(output)));
  }));

test("stored bytes are shown as another dtype, as packed integers, and in another shape", () =>
  withPage(browser, async (page) => {
    const bytes = Buffer.from([0x3f, 0x80, 0x21, 0xf4]);
    await drop(page, "body", [{ name: "x.safetensors", bytes: stored({ codes: ["I16", [2], bytes] }) }]);
    await page.waitForSelector("#work .row");
    await select(page, "codes");
    const cells = () => page.$$eval(".insp .vals td:not(:empty)", (all) => all.map((it) => Number(it.title)));
    await page.selectOption("#shown-as select", "uint16");
    await becomes(cells, [0x803f, 0xf421]);
    await page.selectOption("#shown-as select", "uint4");
    await becomes(cells, [15, 3, 0, 8, 1, 2, 4, 15]);
    await page.fill("#shown-as input", "2, 4");
    await page.keyboard.press("Enter");
    await becomes(() => page.$$eval(".insp .vals tr", (all) => all.length), 2);
    await page.fill("#shown-as input", "3");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".insp .w-warn");
    await page.selectOption("#shown-as select", "");
    await becomes(cells, [-32705, -3039]);
    assert.deepEqual(await accessibility(page, "stored bytes"), []);
  }));

test("a scale that is not finite is a finding about the values", () =>
  withPage(browser, async (page) => {
    const file = readFileSync(fixture("quantized/gptq_4bit/model.safetensors"));
    const length = Number(file.readBigUInt64LE(0));
    const head = JSON.parse(file.subarray(8, 8 + length).toString());
    const scales = Object.keys(head).find((key) => key.endsWith(".scales"));
    file.writeUInt16LE(0x7e00, 8 + length + head[scales].data_offsets[0]);
    const config = readFileSync(fixture("quantized/gptq_4bit/config.json"));
    await drop(page, "body", [{ name: "model.safetensors", bytes: file }, { name: "config.json", bytes: config }]);
    await page.waitForSelector("#work .row");
    await page.getByRole("button", { name: "Read values" }).click();
    await page.waitForFunction(() => /all values are read/.test(document.querySelector("#effort")?.textContent));
    await page.keyboard.press("f");
    await page.waitForFunction(() => /scales of .* are wrong/.test(document.body.textContent));
  }));

test("a model and its GGUF file, dropped together, are compared with the worst layers first", () =>
  withPage(browser, async (page) => {
    await drop(page, "body", [dropped("gguf_names/layers.gguf"), dropped("gguf_names/layers.safetensors")]);
    await page.waitForSelector('#verdict[data-state="done"]');
    assert.equal(await page.textContent('.ab [data-side="A"]'), "layers.safetensors");
    assert.equal(await page.textContent('.ab [data-side="B"]'), "layers.gguf");
    await page.waitForSelector("#errors svg");
    let report;
    try {
      report = byCommand("diff", fixture("gguf_names/layers.safetensors"), fixture("gguf_names/layers.gguf"), "--json");
    } catch (error) {
      report = error.stdout;
    }
    const worst = JSON.parse(report).differences.find((it) => it.change);
    const row = await page.waitForSelector("#compare .row[data-key], #compare [role=row][data-key]");
    // The page shows the key of B; its details have both.
    const own = worst.key.replace("model.layers", "blk").replace("mlp.down_proj", "ffn_down").replace("mlp.up_proj", "ffn_up");
    assert.equal(await row.getAttribute("data-key"), own);
    await row.click();
    const shown = await facts(page, ".insp");
    assert.ok(shown["root mean square error"], JSON.stringify(shown));
    assert.deepEqual(await accessibility(page, "quantisation error"), []);
    if (process.env.STATELENS_SHOTS) await page.screenshot({ path: join(process.env.STATELENS_SHOTS, "screens-errors.png") });
  }));

for (const [scheme, width] of [["light", 1440], ["dark", 1440], ["light", 360], ["dark", 360]]) {
  test(`a quantised weight fits its pane: ${scheme}, ${width} px`, () =>
    withPage(
      browser,
      async (page) => {
        await open(page, "quantized/gptq_4bit");
        const [{ key }] = JSON.parse(readFileSync(fixture("quantized/gptq_4bit.expected.json"), "utf8")).entries;
        await page.fill("#filter", key);
        await page.keyboard.press("Enter");
        if (width < 720) await page.getByRole("button", { name: "Tensor" }).or(page.getByRole("tab", { name: "Tensor" })).first().click();
        await page.waitForSelector("#quantised");
        assert.deepEqual(await accessibility(page, "a quantised weight"), []);
        if (process.env.STATELENS_SHOTS) await page.screenshot({ path: join(process.env.STATELENS_SHOTS, `screens-quantised-${scheme}-${width}.png`) });
      },
      { colorScheme: scheme, viewport: { width, height: 900 } },
    ));
}

test("blocks that no target holds are not offered unchanged", () =>
  withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", fixture("gguf/quants.gguf"));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    const group = page.getByRole("radiogroup", { name: /^Dequantise/ });
    await group.waitFor();
    assert.deepEqual(await group.getByRole("radio").allTextContents(), ["f32", "bf16", "f16"]);
    assert.equal(await group.getByRole("radio", { checked: true }).textContent(), "f32");
  }));

test("the codes of a weight lead to its numbers, and a selected part is not a link", () =>
  withPage(browser, async (page) => {
    await open(page, "quantized/gptq_4bit");
    const key = await page.$eval('#work .row[data-key$=".qzeros"]', (row) => row.dataset.key);
    await page.click(`#work .row[data-key="${key}"]`);
    await page.waitForSelector(`.insp[data-key="${key}"] #quantised`);
    const links = () => page.$$eval("#quantised [data-part]", (all) => all.filter((it) => it.querySelector("button")).map((it) => it.dataset.part.split(".").at(-1)));
    assert.ok(!(await links()).includes("qzeros") && (await links()).includes("qweight"), `${await links()}`);
    await page.click('#quantised [data-part$=".qweight"] button');
    await page.waitForSelector(`.insp[data-key="${key.replace("qzeros", "weight")}"]`);
    await becomes(async () => (await links()).includes("qweight"), false);
  }));
