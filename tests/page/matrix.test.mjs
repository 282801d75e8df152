// Values of a matrix: singular values, rows ranked by norm, kernels, several picked keys, exported tensors.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, choosing, command, launch, withPage } from "./harness.mjs";
import { stored } from "./make.mjs";

let browser;
let folder;
let path;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-matrix-"));
  // A matrix of rank 3 with a row of zeros; kernels of which number 5 is the largest.
  const matrix = Array.from({ length: 48 * 40 }, (_, at) => {
    const [row, column] = [Math.floor(at / 40), at % 40];
    return row === 7 ? 0 : (row % 5) * (column % 7) + (row % 3) * 0.5 * (column % 2) + (row === 11 ? column : 0);
  });
  const kernels = Array.from({ length: 4 * 3 * 3 * 3 }, (_, at) => Math.sin(at) * (Math.floor(at / 9) === 5 ? 9 : 1));
  const half = Array.from({ length: 24 }, (_, at) => 0x3f80 + at);
  path = join(folder, "model.safetensors");
  const tensors = {
    "embed.weight": ["F32", [48, 40], Buffer.from(Float32Array.from(matrix).buffer)],
    "conv.weight": ["F32", [4, 3, 3, 3], Buffer.from(Float32Array.from(kernels).buffer)],
    "norm.weight": ["BF16", [24], Buffer.from(Uint16Array.from(half).buffer)],
  };
  writeFileSync(path, stored(tensors));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function open(page) {
  await page.setInputFiles("#choose-files", path);
  await page.waitForSelector("#work .row");
}

async function select(page, key) {
  await page.fill("#filter", key);
  await page.keyboard.press("Enter");
  await page.waitForFunction((key) => document.querySelector(".insp .wrapkey")?.textContent.includes(key), key);
}

async function expand(page, key) {
  await open(page);
  await select(page, key);
  await page.keyboard.press("e");
  await page.waitForSelector("#overview canvas");
}

/** Returns the name and the bytes of the file that a click saves. */
async function saved(page, click) {
  const download = page.waitForEvent("download");
  await click();
  const file = await download;
  return [file.suggestedFilename(), readFileSync(await file.path())];
}

const json = (...arguments_) => JSON.parse(execFileSync(command, [...arguments_, "--json"], { encoding: "utf8" }));

test("singular values match the command, with rank and chart", async () => {
  await withPage(browser, async (page) => {
    await expand(page, "embed.weight");
    assert.match(await page.textContent("#singular-all"), /Find all 40 · about \d+ s/);
    assert.match(await page.textContent("#singular"), /read once \(7\.68 kB\), in 12\.8 kB of memory/);
    await page.click("#singular-all");
    await page.waitForSelector("#singular svg desc", { state: "attached" });
    const facts = await page.textContent("#singular dl");
    assert.match(facts, /rank3 of 40/);
    assert.match(await page.textContent("#singular svg desc"), /^Singular values of embed\.weight: singular value by number\. all 40: [\d.]+ at 1, /);
    const [name, bytes] = await saved(page, () => page.click("#save-singular"));
    assert.equal(name, "embed.weight.singular.csv");
    const lines = bytes.toString().trim().split("\n").slice(1);
    const wanted = json("singular", path, "embed.weight").values;
    assert.deepEqual(lines.map((line) => Number(line.split(",")[1])), wanted);
    // The largest singular values alone give the same rank.
    await page.click("#singular-largest");
    await page.waitForFunction(() => /rank3 of 40/.test(document.querySelector("#singular dl")?.textContent) && !document.querySelector("#singular-stop"));
  });
});

test("rows are ranked by norm, and kernels shown as tiles (core)", async () => {
  await withPage(browser, async (page) => {
    await expand(page, "embed.weight");
    await page.click("#rank-rows");
    await page.waitForSelector("#ranked table");
    const ranked = json("stats", path, "embed.weight", "--rank", "rows", "--top", "8");
    const rows = await page.evaluate(() => [...document.querySelectorAll("#ranked tbody button")].map((node) => Number(node.textContent)));
    assert.deepEqual(rows, [...ranked.largest, ...ranked.smallest].map((row) => row.index[0]));
    assert.match(await page.textContent("#ranked dl"), new RegExp(`all zero${ranked.zero}equal to an earlier one${ranked.copied}$`));
    await page.click("#ranked tbody button");
    await page.waitForFunction((row) => document.querySelector("#selected-value").textContent.startsWith(`[${row}, 20]`), rows[0]);
    await page.keyboard.press("Escape");
    await select(page, "conv.weight");
    await page.keyboard.press("e");
    await page.click("#show-kernels");
    await page.waitForSelector(".tiles li");
    assert.equal(await page.locator(".tiles li").count(), 12);
    // Kernel 5 has the index [1, 2].
    assert.match(await page.getAttribute(".tiles button", "aria-label"), /^\[1, 2\]: norm/);
    await page.click(".tiles button");
    await page.waitForFunction(() => document.querySelector("#selected-value").textContent.startsWith("[1, 2, "));
    await page.getByRole("radio", { name: "in order" }).click();
    await page.waitForFunction(() => document.querySelector(".tiles button")?.getAttribute("aria-label").startsWith("[0, 0]"));
    const [name, bytes] = await saved(page, () => page.getByRole("button", { name: ".npy", exact: true }).click());
    assert.match(name, /^conv\.weight_1__2_+\.npy$/);
    assert.match(bytes.toString("latin1"), /^.NUMPY.*'descr': '<f4', 'fortran_order': False, 'shape': \(3, 3\)/s);
    assert.equal(bytes.readFloatLE(bytes.length - 36), Math.fround(Math.sin(45) * 9));
  });
});

test("the wheel scrolls the values; profiles show magnitude or norm", async () => {
  await withPage(browser, async (page) => {
    await expand(page, "embed.weight");
    await page.waitForFunction(() => /^\[0, 0\] \S/.test(document.querySelector("#selected-value").textContent));
    await page.selectOption("#matrix-scale", "linear");
    const before = await page.locator(".profile path").first().getAttribute("d");
    await page.selectOption("#matrix-profiles", "norm");
    await page.waitForFunction((before) => document.querySelector(".profile path").getAttribute("d") !== before, before);
    await page.hover("table.grid");
    await page.mouse.wheel(0, 330);
    await page.waitForFunction(() => /^\[1\d, 0\]/.test(document.querySelector("#selected-value").textContent));
  });
});

test("several keys are picked, counted, converted and compared", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    const rows = page.locator("#work .row:not(.grp)");
    await rows.nth(0).click();
    await rows.nth(2).click({ modifiers: ["Control"] });
    assert.match(await page.textContent("#picked b"), /^2 keys · [\d,.]+ k params · /);
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#picked").count(), 0);
    await rows.nth(0).click();
    await page.keyboard.press("Shift+ArrowDown");
    await page.keyboard.press("Shift+ArrowDown");
    assert.match(await page.textContent("#picked b"), /^3 keys/);
    assert.equal(await page.locator('#work .row[aria-selected="true"]').count(), 3);
    await page.keyboard.press("Space");
    assert.match(await page.textContent("#picked b"), /^2 keys/);
    await page.click("#convert-picked");
    await page.waitForSelector("#convert");
    await page.waitForFunction(() => /keys2 of 3/.test(document.querySelector(".plan dl")?.textContent));
    await page.keyboard.press("Escape");
    // The comparison is filtered by the picked keys.
    const chooser = await choosing(page, () => page.click("#compare-other"));
    await chooser.setFiles(path);
    await page.waitForSelector("#compare-filter, [aria-label='Filter keys']");
    assert.match(await page.inputValue("[aria-label='Filter keys']"), /^\/\^\(.*\\\.weight\|.*\\\.weight\)\$\/$/);
  });
});

test("a long press picks a row, and taps pick more", async () => {
  await withPage(
    browser,
    async (page) => {
      await open(page);
      const touch = await page.context().newCDPSession(page);
      const rows = page.locator("#work .row:not(.grp)");
      const send = (type, points) => touch.send("Input.dispatchTouchEvent", { type, touchPoints: points });
      const middle = async (at) => {
        const box = await rows.nth(at).boundingBox();
        return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
      };
      const hold = async (at, millis, move = 0) => {
        const point = await middle(at);
        await send("touchStart", [point]);
        if (move) await send("touchMove", [{ ...point, y: point.y - move }]);
        await page.waitForTimeout(millis);
        await send("touchEnd", []);
      };
      // A touch that moves is a scroll.
      await hold(0, 700, 40);
      assert.equal(await page.locator("#picked").count(), 0);
      await hold(0, 700);
      await page.waitForSelector('#picked[data-count="1"]');
      assert.ok(await rows.nth(0).isVisible(), "the table is still there");
      await hold(2, 50);
      await page.waitForSelector('#picked[data-count="2"]');
      assert.equal(await page.locator("#work .row.picked").count(), 2);
      await hold(2, 700);
      await page.waitForSelector('#picked[data-count="1"]');
      await page.locator("#clear-picked").tap();
      assert.equal(await page.locator("#picked").count(), 0);
      // Without picked rows, a tap selects a key.
      await rows.nth(1).tap();
      await page.locator(".insp .wrapkey").waitFor();
      assert.equal(await page.locator("#picked").count(), 0);
    },
    { hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 } },
  );
});

test("a tensor is saved as text, as bytes and as float32", async () => {
  await withPage(browser, async (page) => {
    await open(page);
    await select(page, "norm.weight");
    const save = (name) => saved(page, () => page.locator(".saveas").getByRole("button", { name, exact: true }).click());
    const csv = await save(".csv");
    assert.equal(csv[0], "norm.weight.csv");
    assert.equal(csv[1].toString().trim().split(",").length, 24);
    assert.ok(csv[1].toString().startsWith("1.0,1.0078125,"));
    assert.equal((await save(".raw"))[1].length, 48);
    await page.check(".upcast input");
    const raw = (await save(".raw"))[1];
    assert.deepEqual([raw.length, raw.readFloatLE(4)], [96, 1.0078125]);
  });
});

for (const [colorScheme, width, height] of [["light", 1440, 900], ["dark", 390, 844]]) {
  test(`axe finds nothing serious at ${width}, ${colorScheme}`, async () => {
    await withPage(
      browser,
      async (page) => {
        await open(page);
        await page.locator("#work .row:not(.grp)").nth(1).click({ modifiers: ["Control"] });
        await page.waitForSelector("#picked");
        assert.deepEqual(await accessibility(page, "picked", ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"]), []);
        await page.keyboard.press("Escape");
        await select(page, "embed.weight");
        await page.keyboard.press("e");
        await page.click("#singular-all");
        await page.waitForSelector("#singular svg desc", { state: "attached" });
        await page.click("#rank-rows");
        await page.waitForSelector("#ranked table");
        assert.deepEqual(await accessibility(page, "singular values", ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"]), []);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `nothing is wider than the window: ${wide}`);
      },
      { colorScheme, viewport: { width, height } },
    );
  });
}
