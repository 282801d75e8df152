// The heatmap of a matrix: blocks, lens, exact values.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, command, launch, withPage } from "./harness.mjs";

let browser;
let folder;
let sparse;
let small;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-expand-"));
  // A sparse file of 1.6 GB.
  sparse = make("sparse.safetensors", { "big.weight": ["F32", [20_000, 20_000], 4] }, (put) => {
    put("big.weight", 12_345 * 20_000 + 6_789, floats([0.25, -7.5, 0.125]));
    put("big.weight", 3 * 20_000 + 5, floats([1.5, NaN]));
  });
  const half = Array.from({ length: 96 * 128 }, (_, at) => 0x3c00 + ((at * 7919) % 768) + (at % 3 ? 0x8000 : 0));
  const kernel = Array.from({ length: 3 * 4 * 5 * 6 }, (_, at) => at - 100);
  const vector = Array.from({ length: 3000 }, (_, at) => ((at * 31) % 17) - 8);
  small = make("small.safetensors", { "half.weight": ["BF16", [96, 128], 2], "kernel.weight": ["F32", [3, 4, 5, 6], 4], "vector.bias": ["F32", [3000], 4] }, (put) => {
    put("half.weight", 0, Buffer.from(Uint16Array.from(half).buffer));
    put("kernel.weight", 0, floats(kernel));
    put("vector.bias", 0, floats(vector));
  });
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const floats = (values) => Buffer.from(Float32Array.from(values).buffer);

/** Writes a sparse safetensors file: zeros, except for what `fill` writes. */
function make(name, tensors, fill) {
  const head = {};
  let at = 0;
  for (const [key, [dtype, shape, size]] of Object.entries(tensors)) {
    const length = shape.reduce((product, dim) => product * dim, size);
    head[key] = { dtype, shape, data_offsets: [at, at + length] };
    at += length;
  }
  const text = JSON.stringify(head);
  const padded = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const path = join(folder, name);
  const file = openSync(path, "w");
  writeSync(file, Buffer.concat([length, padded]));
  ftruncateSync(file, 8 + padded.length + at);
  fill((key, first, bytes) => writeSync(file, bytes, 0, bytes.length, 8 + padded.length + head[key].data_offsets[0] + first * tensors[key][2]));
  closeSync(file);
  return path;
}

async function expand(page, path, key) {
  await page.setInputFiles("#choose-files", path);
  await page.waitForSelector("#work .row");
  await page.fill("#filter", key);
  await page.keyboard.press("Enter");
  await page.waitForFunction((key) => document.querySelector(".insp .wrapkey")?.textContent.includes(key), key);
  await page.keyboard.press("e");
  await page.waitForSelector("#overview canvas");
}

/** Waits until the whole tensor is read. */
const read = (page) => page.waitForSelector("#matrix-stop", { state: "detached", timeout: 240_000 });

/** Returns the darkest block of the overview, the number of columns and rows, and the blocks with NaN. */
const darkest = (page) =>
  page.evaluate(() => {
    const canvas = document.querySelector("#overview canvas");
    const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const light = (at) => 0.2126 * data[at * 4] + 0.7152 * data[at * 4 + 1] + 0.0722 * data[at * 4 + 2];
    const odd = (at) => data[at * 4] > 180 && data[at * 4 + 1] < 60;
    let best = -1;
    for (let at = 0; at < width * height; at++) if (!odd(at) && (best < 0 || light(at) < light(best))) best = at;
    const odds = Array.from({ length: width * height }, (_, at) => at).filter(odd).map((at) => [at % width, Math.floor(at / width)]);
    return { column: best % width, row: Math.floor(best / width), width, height, odds };
  });

/** Returns the centre of a block on the screen. */
async function block(page, { column, row, width, height }) {
  const box = await page.locator("#overview canvas").boundingBox();
  return [box.x + ((column + 0.5) / width) * box.width, box.y + ((row + 0.5) / height) * box.height];
}

/** Returns the values of the grid, and the numbers of its rows and columns. */
const grid = (page) =>
  page.evaluate(() => {
    const columns = [...document.querySelectorAll(".grid thead th")].map((cell) => Number(cell.textContent));
    const rows = [...document.querySelectorAll(".grid tbody tr")].map((row) => [Number(row.querySelector("th").textContent), [...row.querySelectorAll("td")].map((cell) => cell.title)]);
    return { columns, rows };
  });

/** Returns the same values as the command prints them. */
function shown(path, key, { columns, rows }, leading = "") {
  const slice = `${leading}${rows[0][0]}:${rows.at(-1)[0] + 1}, ${columns[0]}:${columns.at(-1) + 1}`;
  const output = execFileSync(command, ["show", "--json", path, `${key}[${slice}]`], { encoding: "utf8" });
  // Compares texts, because a parsed number has lost its `.0`.
  return /"values":\[(.*)\]/.exec(output)[1].split(",").map((text) => text.replaceAll('"', "").toLowerCase());
}

const selection = (page) => page.textContent("#selected-value");

test("the heatmap shows an outlier as the darkest block; a click or its index selects it", async () => {
  await withPage(browser, async (page) => {
    await expand(page, sparse, "big.weight");
    // The heatmap is drawn while the tensor is being read.
    assert.match(await page.textContent(".exp .main .going"), /of 1\.60 GB/);
    await read(page);
    const best = await darkest(page);
    const [high, wide] = [Math.ceil(20_000 / best.height), Math.ceil(20_000 / best.width)];
    assert.deepEqual([best.column, best.row], [Math.floor(6_790 / wide), Math.floor(12_345 / high)]);
    assert.deepEqual(best.odds, [[0, 0]], "the block with NaN is marked");
    const scale = await page.$eval(".legend", (legend) => [...legend.children].map((part) => part.getBoundingClientRect().width));
    assert.equal(scale[0], scale[1], "the colour scale is as wide as its numbers");
    assert.match(await page.getAttribute("#overview", "aria-label"), /the value of largest magnitude is \u22127\.5, in rows 1\d+ to 1\d+, columns 6\d+ to 6\d+; 1 cell has NaN/);
    await page.mouse.move(...(await block(page, best)));
    await page.waitForFunction(() => /largest −7\.5 · mean \|x\|/.test(document.querySelector(".overview .read").textContent));
    await page.mouse.click(...(await block(page, best)));
    await page.waitForFunction(() => /\[12345, 6790\] −7\.5 bits c0f00000/.test(document.querySelector("#selected-value").textContent));
    const byte = Number((await selection(page)).match(/byte ([\d,]+) of the file/)[1].replaceAll(",", ""));
    assert.equal(byte, 987_627_160 + statSync(sparse).size - 1_600_000_000);
    assert.equal(await page.locator(".grid td.at").getAttribute("title"), "-7.5");
    const values = await grid(page);
    assert.deepEqual(values.rows.flatMap(([, row]) => row), shown(sparse, "big.weight", values));

    // An index selects a value; Escape closes the heatmap.
    await page.keyboard.press("g");
    await page.keyboard.type("[3, 6]");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /^\[3, 6\] nan/.test(document.querySelector("#selected-value").textContent));
    await page.keyboard.press("ArrowLeft");
    await page.waitForFunction(() => /^\[3, 5\] 1\.5/.test(document.querySelector("#selected-value").textContent));
    assert.ok((await page.locator("#matrix *").count()) < 700, "few nodes");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#work .row");
  }, { viewport: { width: 1440, height: 900 } });
});

test("a stopped heatmap shows what was read", async () => {
  await withPage(browser, async (page) => {
    await expand(page, sparse, "big.weight");
    await page.click("#matrix-stop");
    await page.waitForSelector("#matrix-stopped");
    assert.match(await page.textContent("#matrix-stopped"), /stopped after .* of 1\.60 GB/);
    assert.ok(await page.locator("#overview canvas").isVisible());
  });
});

test("values of bfloat16 are exact, and keys move the lens (core)", async () => {
  await withPage(browser, async (page) => {
    await expand(page, small, "half.weight");
    await page.waitForFunction(() => /^\[0, 0\] \S/.test(document.querySelector("#selected-value").textContent));
    const values = await grid(page);
    assert.deepEqual(values.rows.flatMap(([, row]) => row), shown(small, "half.weight", values));
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => document.querySelector("#selected-value").textContent.startsWith("[1, 1]"));
    await page.keyboard.press("Shift+ArrowRight");
    await page.waitForFunction(() => document.querySelector("#selected-value").textContent.startsWith("[1, 65] "));
    await page.keyboard.press("+");
    await page.locator(".matrix-bar", { hasText: "8 px per value" }).waitFor();
    await page.keyboard.press("0");
    await page.locator(".matrix-bar", { hasText: "2 px per value" }).waitFor();
    // Transposed: the same key moves along the other dimension.
    await page.keyboard.press("t");
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction(() => document.querySelector("#selected-value").textContent.startsWith("[1, 66] "));
    await page.keyboard.press("End");
    await page.waitForFunction(() => document.querySelector("#selected-value").textContent.startsWith("[95, 127] "));
    await page.keyboard.press("e");
    await page.waitForSelector("#work .row");
  });
});

test("tensors of more dimensions show a slice, long vectors are folded", async () => {
  await withPage(browser, async (page) => {
    await expand(page, small, "kernel.weight");
    await page.waitForFunction(() => /^\[0, 0, 0, 0\] −100/.test(document.querySelector("#selected-value").textContent));
    await page.fill('[aria-label="Index of dimension 0, of 3"]', "2");
    await page.keyboard.press("Tab");
    await page.waitForFunction(() => /^\[2, 0, 0, 0\] 140/.test(document.querySelector("#selected-value").textContent));
    await page.locator('[aria-label="Slider of dimension 1"]').focus();
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => /^\[2, 1, 0, 0\] 170/.test(document.querySelector("#selected-value").textContent));
    const values = await grid(page);
    assert.deepEqual(values.rows.flatMap(([, row]) => row), shown(small, "kernel.weight", values, "2, 1, "));
    await page.fill("#go-to", "1, 3, 4, 5");
    await page.press("#go-to", "Enter");
    await page.waitForFunction(() => /^\[1, 3, 4, 5\] 139/.test(document.querySelector("#selected-value").textContent));
    await page.fill("#go-to", "9");
    await page.press("#go-to", "Enter");
    assert.match(await page.textContent(".matrix-bar [role=alert]"), /index 9 is outside of 3/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await expand(page, small, "vector.bias");
    await page.fill("#go-to", "2999");
    await page.press("#go-to", "Enter");
    await page.waitForFunction(() => document.querySelector("#selected-value").textContent.startsWith("[2999] "));
    assert.match(await page.locator(".grid td.at").getAttribute("title"), new RegExp(`^${((2999 * 31) % 17) - 8}\\.0$`));
  });
});

test("the heatmap is saved as a picture and as numbers", async () => {
  await withPage(browser, async (page) => {
    await expand(page, small, "half.weight");
    await read(page);
    const save = async (kind) => {
      const saved = page.waitForEvent("download");
      await page.click(`#save-${kind}`);
      const download = await saved;
      assert.equal(download.suggestedFilename(), `half.weight.${kind}`);
      return readFileSync(await download.path());
    };
    const png = await save("png");
    assert.equal(png.subarray(1, 4).toString(), "PNG");
    const svg = (await save("svg")).toString();
    assert.match(svg, /^<svg [^]*<title>half\.weight<\/title>[^]*<\/svg>\n$/);
    // The browser renders the SVG, with its fonts, at twice its size.
    const size = ["width", "height"].map((name) => 2 * Number(new RegExp(` ${name}="(\\d+)"`).exec(svg)[1]));
    assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20)], size);
    const lines = (await save("csv")).toString().trimEnd().split("\n");
    assert.equal(lines.length, 1 + 96 * 128);
    // Each block is a single value here.
    const first = shown(small, "half.weight", { columns: [0, 1], rows: [[0], [0]] });
    const exact = lines.slice(1, 3).map((line) => Number(line.split(",")[4]));
    exact.forEach((value, at) => assert.ok(Math.abs(value - first[at]) < 1e-6 * Math.abs(value), `${value}, ${first[at]}`));
    for (const [menu, choice] of [["matrix-scale", "quantile"], ["matrix-show", "largest, ±"], ["matrix-scale", "± log"]]) {
      const before = await page.evaluate(() => document.querySelector("#overview canvas").toDataURL());
      await page.selectOption(`#${menu}`, choice);
      await page.waitForFunction((before) => document.querySelector("#overview canvas").toDataURL() !== before, before);
    }
  });
});

for (const colorScheme of ["light", "dark"]) {
  for (const [width, height] of [[1440, 900], [390, 844]]) {
    test(`axe finds nothing serious at ${width}, ${colorScheme}`, async () => {
      await withPage(
        browser,
        async (page) => {
          await page.setInputFiles("#choose-files", small);
          await page.waitForSelector("#work .row");
          await page.keyboard.press("j");
          await page.waitForSelector("#work .row.sel");
          await page.keyboard.press("e");
          await page.waitForSelector("#overview canvas");
          await page.waitForFunction(() => /bits/.test(document.querySelector("#selected-value").textContent));
          assert.deepEqual(await accessibility(page, "expanded", ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"]), []);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(wide <= width, `nothing is wider than the window: ${wide}`);
        },
        { colorScheme, viewport: { width, height } },
      );
    });
  }
}
