// Values of tensors: a scan reads all of them, and the inspector reads those of the selected tensor.

import assert from "node:assert/strict";
import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, choosing, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-values-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/**
 * Writes a sparse safetensors file of float32: zeros, except for what `fill` writes.
 * @param {string} name of the file
 * @param {Record<string, number[]>} shapes of the tensors
 * @param {(put: (key: string, first: number, values: number[]) => void) => void} fill writes values, from element `first`
 */
function make(name, shapes, fill) {
  const head = {};
  let at = 0;
  for (const [key, shape] of Object.entries(shapes)) {
    const length = shape.reduce((product, dim) => product * dim, 4);
    head[key] = { dtype: "F32", shape, data_offsets: [at, at + length] };
    at += length;
  }
  const text = Buffer.from(JSON.stringify(head).padEnd(Math.ceil(JSON.stringify(head).length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const path = join(folder, name);
  const file = openSync(path, "w");
  writeSync(file, Buffer.concat([length, text]));
  ftruncateSync(file, 8 + text.length + at);
  fill((key, first, values) => {
    const bytes = Buffer.from(Float32Array.from(values).buffer);
    writeSync(file, bytes, 0, bytes.length, 8 + text.length + head[key].data_offsets[0] + first * 4);
  });
  closeSync(file);
  return path;
}

/** Returns `count` values between `-size` and `size`. */
function spread(size, count) {
  return Array.from({ length: count }, (_, at) => (size * (((at * 7919) % 101) - 50)) / 50);
}

/** Writes a small model of `layers` layers; `change(put)` changes it. */
function model(name, layers, change = () => {}) {
  const shapes = { "model.embed.weight": [64, 16] };
  for (let at = 0; at < layers; at++) {
    shapes[`model.layers.${at}.attn.weight`] = [16, 16];
    shapes[`model.layers.${at}.attn.bias`] = [16];
    shapes[`model.layers.${at}.norm.weight`] = [16];
  }
  return make(name, shapes, (put) => {
    put("model.embed.weight", 0, spread(0.02, 1024));
    for (let at = 0; at < layers; at++) {
      put(`model.layers.${at}.attn.weight`, 0, spread(0.02 * 1.05 ** at, 256));
      put(`model.layers.${at}.norm.weight`, 0, Array(16).fill(1));
    }
    change(put);
  });
}

/** A window that is wide enough for all columns of values. */
const WIDE = { viewport: { width: 1600, height: 900 } };

async function open(page, path) {
  await page.setInputFiles("#choose-files", path);
  await page.waitForSelector("#work .row");
}

async function scan(page) {
  await page.click("#scan");
  await page.waitForSelector("#scanned");
}

test("the status bar reports that all values are read, instead of the bytes that opening read", async () => {
  const path = make("partly.safetensors", { "part.weight": [2000, 2000] }, () => {});
  await withPage(browser, async (page) => {
    await open(page, path);
    assert.match(await page.textContent("#effort"), /read [\d.]+ [kM]B of 16\.0 MB/);
    await scan(page);
    assert.match(await page.textContent("#effort"), /^opened in [\d.]+ s · all values are read$/);
  });
});

/** Returns the text of a row of the table, by column. */
function cells(page, key) {
  return page.evaluate((key) => {
    const rows = [...document.querySelectorAll(".scroller .row")];
    const row = rows.find((row) => row.querySelector(".key")?.textContent.includes(key));
    return row && Object.fromEntries([...row.querySelectorAll(".c")].map((cell) => [cell.classList[1], cell.textContent.trim()]));
  }, key);
}

test("a NaN in a file of 20 GB is found and selected in four clicks", { timeout: 400_000 }, async () => {
  // A sparse file.
  const shapes = { "head.weight": [1000, 500] };
  for (let at = 0; at < 40; at++) shapes[`layers.${at}.weight`] = [10_000, 12_500];
  const path = make("twenty.safetensors", shapes, (put) => {
    put("head.weight", 0, spread(1, 1000));
    put("layers.31.weight", 120 * 12_500 + 576, [NaN]);
  });
  await withPage(browser, async (page) => {
    const chooser = await choosing(page, () => page.getByRole("button", { name: "Open files" }).click());
    await chooser.setFiles(path);
    await page.waitForSelector("#work .row");
    await page.click("#scan");
    // The gauge shows progress and speed.
    await page.waitForFunction(() => /of 20\.0 GB · [\d.]+ [MG]B\/s/.test(document.querySelector("#scanning .scan-progress")?.textContent ?? ""));
    assert.equal(await page.locator("#scanning [role=progressbar]").getAttribute("aria-label"), "Scanning values");
    await page.waitForSelector("#scanned", { timeout: 300_000 });
    assert.match(await page.textContent("#scanned"), /scanned 20\.0 GB in (\d+ min )?[\d.]+ s/);
    await page.click(".notice");
    await page.getByRole("button", { name: "Show [120, 576]" }).click();
    await page.waitForSelector(".vals .here");
    assert.equal(await page.textContent(".vals .here"), "nan");
    assert.ok(await page.locator(".vals .here").isVisible());
    const box = await page.locator(".vals .here").boundingBox();
    assert.ok(box.y > 0 && box.y + box.height < page.viewportSize().height, "it is visible");
    assert.match(await page.textContent(".insp .wrapkey"), /layers\.31\.weight/);
    // The table marks it, too.
    assert.equal((await cells(page, "weight")).wnn, "–");
    assert.equal(await page.locator(".row.bad").count(), 2, "the fold, and its pattern");
  });
});

test("columns of values are exact and sortable, with totals and extremes of folds (core)", async () => {
  const path = model("columns.safetensors", 12, (put) => {
    put("model.layers.5.attn.weight", 17, [NaN, Infinity]);
    put("model.layers.7.attn.weight", 3, [4]);
  });
  await withPage(browser, async (page) => {
    await open(page, path);
    await scan(page);
    // σ of 1,024 values in steps of a hundredth, computed with Python.
    assert.deepEqual(await cells(page, "embed.weight").then(({ wsd, wmx, wzr, wnn }) => [wsd, wmx, wzr, wnn]), ["0.01167", "0.02000", "1.0 %", "–"]);
    const attn = await cells(page, "attn.weight");
    assert.deepEqual([attn.wmx, attn.wnn], ["4", "2 !"]);
    const fold = await cells(page, "model.layers.0–11");
    assert.deepEqual([fold.wmx, fold.wnn, fold.wsd], ["4", "2 !", ""]);
    assert.deepEqual(await cells(page, "norm.weight").then(({ wsd, wzr }) => [wsd, wzr]), ["0", "0 %"]);
    // The sparkline shows a layer on hover, and selects it on click.
    const line = page.locator('.row[data-key$="attn.weight"] .spark').first();
    assert.match(await line.getAttribute("aria-label"), /σ by layer, from 0\.0\d+ to/);
    const box = await line.boundingBox();
    await page.mouse.move(box.x + box.width - 2, box.y + box.height / 2);
    await page.waitForFunction(() => /layer 11: σ 0\.0/.test(document.querySelector(".spark .tip")?.textContent ?? ""));
    await page.mouse.click(box.x + 2, box.y + box.height / 2);
    await page.waitForFunction(() => document.querySelector(".insp .wrapkey")?.textContent.includes("layers.0.attn.weight"));
    // Sorts by the largest magnitude, first descending, then ascending.
    await page.locator(".head").getByRole("button", { name: "|x| max" }).first().click();
    assert.match(await page.locator(".scroller .row .key").first().textContent(), /attn\.weight/);
    await page.locator(".head").getByRole("button", { name: "|x| max" }).first().click();
    assert.match(await page.locator(".scroller .row .key").first().textContent(), /attn\.bias/);
  }, WIDE);
});

test("filters can test values", async () => {
  const path = model("filters.safetensors", 10, (put) => {
    put("model.layers.5.attn.weight", 17, [NaN]);
    put("model.layers.7.attn.weight", 3, [400]);
  });
  await withPage(browser, async (page) => {
    await open(page, path);
    const hits = async (filter) => {
      await page.fill("#filter", filter);
      return page.textContent(".filterbar .hits");
    };
    assert.equal(await hits("nan>0"), "0 keys");
    assert.match(await page.textContent(".empty"), /needs values, which are not read yet/);
    await page.fill("#filter", "");
    await scan(page);
    assert.equal(await hits("nan>0"), "1 key");
    assert.equal(await hits("absmax>100"), "1 key");
    assert.equal(await hits("zeros>50%"), "10 keys");
    assert.equal(await hits("std<1e-6"), "20 keys");
    assert.equal(await hits("std<1e-6 -zeros>50%"), "10 keys");
    await hits("nan>many");
    assert.equal(await page.getAttribute("#filter", "aria-invalid"), "true");
    assert.match(await page.textContent(".filter-error"), /needs a number/);
  });
});

test("findings about values show numbers, location and checks (core)", async () => {
  const odd = model("odd.safetensors", 16, (put) => {
    put("model.layers.9.attn.weight", 0, spread(0.3, 256));
    put("model.layers.3.attn.weight", 0, spread(0.02 * 1.05 ** 2, 256));
    put("model.layers.12.attn.weight", 0, Array(256).fill(0));
  });
  await withPage(browser, async (page) => {
    await open(page, odd);
    await scan(page);
    await page.keyboard.press("f");
    const contents = await page.textContent(".sheet");
    assert.match(contents, /model\.layers\.9\.attn\.weight is not like its siblings/i);
    assert.match(contents, /σ 0\.175 where 0\.018\d* is expected \(9\.67×\), \|x\| mean 9\.67×.*4 of 4 measures agree/);
    assert.match(await page.locator("svg.depth").first().getAttribute("aria-label"), /σ over 15 siblings: number 9 has 0\.175 where/);
    assert.match(contents, /model\.layers\.12\.attn\.weight is all zeros/i);
    assert.match(contents, /model\.layers\.2\.attn\.weight and model\.layers\.3\.attn\.weight are equal bit for bit/i);
    assert.match(contents, /16 tensors are all zeros/);
    assert.match(contents, /The structure and all values were read/);
    await page.locator(".of-values:has(svg.depth)").first().getByRole("button", { name: "Show the key" }).click();
    await page.waitForFunction(() => document.querySelector(".insp .wrapkey")?.textContent.includes("layers.9.attn.weight"));
    // The sparkline marks the outlier.
    assert.equal(await page.locator(".spark .odd").count(), 1);

    const sound = make("sound.safetensors", { "a.weight": [16, 16] }, (put) => put("a.weight", 0, spread(1, 256)));
    await page.setInputFiles("#choose-files", sound);
    await page.waitForSelector('#work[data-name="sound.safetensors"]');
    await scan(page);
    await page.keyboard.press("f");
    assert.match(await page.textContent("#values-good"), /Nothing found in the values.*Looked for NaN and infinite values/);
  }, WIDE);
});

test("a stopped scan keeps its results, and resumes", async () => {
  const shapes = {};
  for (let at = 0; at < 40; at++) shapes[`part_${String.fromCharCode(97 + (at % 26))}${at}.weight`] = [100_000, 500];
  const path = make("stopped.safetensors", shapes, () => {});
  await withPage(browser, async (page) => {
    await open(page, path);
    await page.click("#scan");
    await page.waitForFunction(() => [...document.querySelectorAll(".row .wzr")].some((cell) => cell.textContent === "100 %"));
    // Rows that are not read yet have a mark.
    assert.ok((await page.locator('.row .wmx:has-text("·")').count()) > 0);
    await page.click("#scan-stop");
    await page.waitForSelector("#scanned");
    assert.match(await page.textContent("#scanned"), /stopped after [\d.]+ [GM]B/);
    const before = await page.locator('.row .wzr:has-text("100 %")').count();
    assert.ok(before > 0);
    assert.match(await page.textContent("#scan"), /Read the rest · [\d.]+ GB/);
    await page.click("#scan");
    await page.waitForSelector("#scanning");
    assert.ok((await page.locator('.row .wzr:has-text("100 %")').count()) >= before, "what was read is still there");
    await page.click("#scan-stop");
    await page.waitForSelector("#scanned");
  }, WIDE);
});

test("statistics of the selected tensor are read at once, those of a very large one on request", async () => {
  const path = make("inspect.safetensors", { "small.weight": [10, 10], "middle.weight": [10_000, 10_000], "large.weight": [20_000, 15_000] }, (put) => {
    put("small.weight", 0, spread(1, 100));
    put("middle.weight", 3, [-8, 2]);
    put("middle.weight", 25 * 10_000 + 7, [Infinity]);
  });
  await withPage(browser, async (page) => {
    await open(page, path);
    await page.keyboard.press("/");
    await page.keyboard.type("small");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#statistics .two");
    const numbers = () => page.evaluate(() => Object.fromEntries([...document.querySelectorAll("#statistics .two > div")].map((pair) => [pair.children[0].textContent, pair.children[1].textContent])));
    assert.deepEqual(await numbers(), { min: "−1", max: "1", mean: "−0.002", "σ": "0.5857", median: "−0.02", "|x| mean": "0.508", zeros: "1", "NaN · Inf": "0 · 0" });
    assert.match(await page.locator(".histogram svg").getAttribute("aria-label"), /^Histogram of 100 values from −1 to 1; half lie between −0\.\d+ and 0\.\d+\.$/);
    // The histogram shows a bin on hover and by arrow keys, on both scales.
    await page.hover(".histogram svg");
    assert.match(await page.textContent(".histogram .read"), /to .*: \d+ values?, /);
    await page.locator(".histogram").getByRole("radio", { name: "log" }).first().click();
    assert.equal(await page.locator('.histogram [role=radio][aria-checked="true"]').textContent(), "± log");
    await page.focus(".histogram svg");
    await page.keyboard.press("ArrowRight");
    assert.match(await page.textContent(".histogram .read"), /to .*: \d+ values?, /);

    // A tensor of more than 64 MB is read on request only, with progress.
    await page.fill("#filter", "middle");
    await page.keyboard.press("Enter");
    await page.click("#read-values");
    await page.waitForSelector("#stop-reading");
    await page.waitForFunction(() => /of 400 MB/.test(document.querySelector("#statistics .hd")?.textContent ?? ""));
    await page.waitForFunction(() => /all 100,000,000 values, /.test(document.querySelector("#statistics .hd")?.textContent ?? ""), null, { timeout: 60_000 });
    const middle = await numbers();
    assert.deepEqual([middle.min, middle.max, middle.zeros, middle["NaN · Inf"]], ["−8", "2", "99,999,997", "0 · 1"]);
    await page.getByRole("button", { name: "first Inf" }).first().click();
    await page.waitForSelector(".vals .here");
    assert.equal(await page.textContent(".vals .here"), "inf");
    assert.match(await page.getByRole("button", { name: "largest" }).first().textContent(), /\[0, 3\]/);

    // For a tensor of 1.2 GB, a button shows how long the read will take, by the speed of earlier reads.
    await page.fill("#filter", "large");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /^Read 1\.20 GB · about \d+ s$/.test(document.querySelector("#read-values")?.textContent ?? ""));
    assert.equal(await page.locator(".histogram").count(), 0);
    await page.click("#read-values");
    await page.waitForSelector("#statistics .two");
    await page.click("#stop-reading");
    await page.waitForSelector("#read-values");
  });
});

for (const width of [360, 390]) {
  test(`at ${width} pixels values are shown in the second line of a row, next to the shape`, async () => {
    const shapes = { "mlp.down.weight": [96, 192], "mlp.up.weight": [192, 96], "norm.weight": [96] };
    const path = make("narrow.safetensors", shapes, (put) => {
      for (const key of ["mlp.down.weight", "mlp.up.weight"]) put(key, 0, spread(0.023456, 192 * 96));
      put("mlp.up.weight", 17, [NaN]);
      put("norm.weight", 17, [Infinity, -Infinity]);
    });
    await withPage(
      browser,
      async (page) => {
        await open(page, path);
        await page.click(".scan-small");
        await page.waitForSelector(".vsum");
        await page.waitForFunction(() => document.querySelectorAll(".vsum").length === 3);
        const lines = await page.locator(".vsum").allTextContents();
        assert.match(lines[0], /^σ 0\.0\d{4} · max 0\.02346$/);
        assert.deepEqual(lines.slice(1), ["max 0.02346 · 1 NaN", "max 0 · 2 Inf"]);
        const overlaps = await page.evaluate(() =>
          [...document.querySelectorAll("#work .row:has(.cs):has(.vsum)")]
            .filter((row) => {
              const shape = document.createRange();
              shape.selectNodeContents(row.querySelector(".cs"));
              return shape.getBoundingClientRect().right > row.querySelector(".vsum").getBoundingClientRect().left;
            })
            .map((row) => row.textContent),
        );
        assert.deepEqual(overlaps, []);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${wide}`);
      },
      { viewport: { width, height: 844 } },
    );
  });
}

test("an index selects a value", async () => {
  const path = make("goto.safetensors", { "a.weight": [200, 1000] }, (put) => put("a.weight", 120_576, [42]));
  await withPage(browser, async (page) => {
    await open(page, path);
    await page.keyboard.press("j");
    await page.waitForSelector("#go-to");
    await page.keyboard.press("g");
    await page.keyboard.type("[120, 576]");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".vals .here");
    assert.equal(await page.textContent(".vals .here"), "42.0");
    await page.fill("#go-to", "200, 0");
    await page.press("#go-to", "Enter");
    assert.match(await page.textContent(".goto [role=alert]"), /Index 200 is out of range \(0–199\)/);
    assert.equal(await page.textContent(".vals .here"), "42.0");
    await page.fill("#go-to", "-1 -1");
    await page.press("#go-to", "Enter");
    await page.waitForFunction(() => document.querySelector(".vals tr:last-child")?.textContent.startsWith("199,") && document.querySelector(".vals .here")?.textContent === "0.0");
  });
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1440, 390]) {
    test(`axe finds nothing in views of values at ${width}, ${colorScheme}`, async () => {
      const path = model("axe.safetensors", 16, (put) => {
        put("model.layers.5.attn.weight", 17, [NaN]);
        put("model.layers.9.attn.weight", 0, spread(0.3, 256));
      });
      const large = make("axe-large.safetensors", { "a.weight": [400_000, 20_000] }, () => {});
      await withPage(
        browser,
        async (page) => {
          const found = [];
          const check = async (what) => {
            found.push(...(await accessibility(page, what)));
          };
          const small = width < 720;
          await open(page, large);
          await page.click(small ? ".scan-small" : "#scan");
          await page.waitForSelector(small ? ".scan-small" : "#scanning");
          await check("scanning");
          await page.click(small ? ".scan-small" : "#scan-stop");
          await (small ? page.locator(".scan-small", { hasText: "Read the rest" }) : page.locator("#scanned")).waitFor();
          await page.setInputFiles("#choose-files", path);
          await page.waitForSelector('#work[data-name="axe.safetensors"]');
          await page.click(small ? ".scan-small" : "#scan");
          await page.waitForSelector(".notice");
          await check("scanned");
          await page.click(".notice");
          await page.waitForSelector("svg.depth");
          await check("findings of values");
          await page.click(".show-value");
          await page.waitForSelector(".vals .here");
          await page.waitForSelector(".histogram");
          await check("a value, and statistics");
          assert.deepEqual(found, []);
        },
        { colorScheme, viewport: { width, height: 844 } },
      );
    });
  }
}
