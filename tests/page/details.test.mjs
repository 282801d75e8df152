// Details: statistics of odd tensors, names for screen readers, sizes of targets, sorting of folds, long keys.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, becomes, choosing, launch, withPage } from "./harness.mjs";
import { floats, stored, trainedCheckpoint } from "./make.mjs";

let browser;
let folder;
let trained;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-details-"));
  trained = join(folder, "trained.safetensors");
  trainedCheckpoint(trained);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function open(page, path) {
  await page.setInputFiles("#choose-files", path);
  await page.waitForSelector("#work .row");
}

/** Writes a file; returns its path. */
function written(name, bytes) {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

const bytes = (...values) => Buffer.from(Float32Array.from(values).buffer);

test("empty tensors, scalars, constants and complex numbers have the statistics that make sense", async () => {
  const path = written("odd.safetensors", stored({
    empty: ["F32", [3, 0, 5], Buffer.alloc(0)],
    scalar: ["F32", [], bytes(2.5)],
    constant: ["F32", [20, 20], bytes(...Array(400).fill(1))],
    complex: ["C64", [3], bytes(1, 2, 3, -4, NaN, 1)],
    plain: ["F32", [4, 4], bytes(...Array(16).keys())],
  }));
  await withPage(browser, async (page) => {
    await open(page, path);
    const shown = async (key) => {
      await page.click(`.row[data-key="${key}"]`);
      await page.waitForSelector(`.insp[data-key="${key}"] #statistics`);
      const text = await page.textContent("#statistics");
      return { text, drawn: await page.locator("#statistics .histogram").count(), places: await page.locator("#statistics .places button").allTextContents() };
    };
    const empty = await shown("empty");
    assert.match(empty.text, /No values: a dimension is 0\.$/);
    for (const key of ["scalar", "constant"]) {
      const { drawn, places } = await shown(key);
      assert.deepEqual([drawn, places], [0, []], key);
    }
    assert.match((await shown("scalar")).text, /value2\.5$/);
    assert.equal(await page.locator(".insp .vals th").count(), 0, "a scalar has no index");
    const complex = await shown("complex");
    assert.match(complex.text, /\|x\| min2\.236.*\|x\| mean3\.618.*\|x\| σ1\.382.*Of the magnitudes \|x\|/);
    assert.equal((complex.text.match(/\|x\| mean/g) ?? []).length, 1);
    assert.deepEqual(complex.places, ["first NaN[2] ›"]);
    const plain = await shown("plain");
    assert.deepEqual([plain.drawn, plain.places], [1, ["largest |x|[3, 3] ›"]]);
  });
});

test("a value that a finding leads to has the focus, and targets are large enough", async () => {
  await withPage(browser, async (page) => {
    await open(page, trained);
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    await page.keyboard.press("f");
    await page.getByRole("button", { name: "Show [120, 57]" }).first().click();
    await page.waitForSelector(".vals .here");
    await becomes(() => page.evaluate(() => document.activeElement.className), "here");
    // The lines around it are in sight, and so is the bar with its bits.
    const visible = (selector) => page.$eval(selector, (it) => {
      const [own, pane] = [it, it.closest(".insp")].map((of) => of.getBoundingClientRect());
      return (own.top + own.bottom - 2 * pane.top) / 2 / pane.height;
    });
    await becomes(async () => ((at) => at > 0.25 && at < 0.75)(await visible(".vals .here")), true);
    assert.ok((await visible("#value-bar")) < 1);
    assert.match(await page.textContent("#value-bar"), /byte [\d,]+ of the file/);
    for (const [width, height] of [[1440, 900], [390, 844]]) {
      await page.setViewportSize({ width, height });
      const found = await accessibility(page, `inspector at ${width}`, ["target-size"]);
      assert.deepEqual(found, []);
    }
  }, { viewport: { width: 1440, height: 900 } });
});

test("keys and columns have their names for screen readers", async () => {
  await withPage(browser, async (page) => {
    await open(page, trained);
    for (const name of ["key", "shape", "params", "bytes"]) {
      assert.equal(await page.getByRole("columnheader", { name, exact: true }).count(), 1, name);
    }
    for (const name of ["model.embed_tokens.weight", "post_attention_layernorm.weight"]) {
      assert.equal(await page.getByRole("gridcell", { name, exact: true }).count(), 1, name);
    }
    assert.equal(await page.getByRole("treeitem", { name: /^post_attention_layernorm 6\.14 kB$/ }).count(), 1);
  });
});

test("folds sorted by bytes are marked as sums, or sorted by their largest member", async () => {
  const layer = (at) => [[`layers.${at}.weight`, Array.from({ length: 20 }, (_, row) => [row, at])]];
  const path = written("folds.safetensors", floats(Object.fromEntries([["head.weight", Array.from({ length: 100 }, (_, row) => [row, 1])], ...Array.from({ length: 12 }, (_, at) => layer(at)).flat()])));
  await withPage(browser, async (page) => {
    await open(page, path);
    await page.getByRole("button", { name: "bytes" }).first().click();
    const rows = () => page.$$eval("#work .row:not(.grp)", (rows) => rows.map((row) => [row.dataset.key, row.querySelector(".cb").textContent.trim()]));
    await becomes(rows, [["layers.0–11.weight", "Σ 1.92 kB"], ["head.weight", "800 B"]]);
    await page.getByRole("button", { name: "by member" }).click();
    await becomes(async () => (await rows()).map(([key]) => key), ["head.weight", "layers.0–11.weight"]);
  }, { viewport: { width: 1440, height: 900 } });
});

test("a key of forty parts takes two lines of the tree at most", async () => {
  const key = Array.from({ length: 40 }, (_, at) => `part${at}`).join(".");
  await withPage(browser, async (page) => {
    await open(page, written("deep.safetensors", floats({ [`a.${key}.weight`]: [1, 2], "b.weight": [1] })));
    const heights = await page.$$eval(".tree [role=treeitem]", (lines) => lines.map((line) => line.getBoundingClientRect().height));
    assert.ok(Math.max(...heights) <= 60, String(heights));
  });
});

test("at 430 pixels and less, no chip above the table is cut", async () => {
  for (const width of [320, 390, 430]) {
    await withPage(browser, async (page) => {
      await open(page, trained);
      await page.evaluate(() => document.querySelector("#scan").click());
      await page.waitForSelector("#scanned", { state: "attached" });
      const cut = await page.$$eval(".filterbar :is(.chip, select)", (chips) =>
        chips
          .filter((chip) => chip.checkVisibility() && chip.getBoundingClientRect().width > 0)
          .filter((chip) => chip.getBoundingClientRect().right > innerWidth || chip.scrollWidth > chip.clientWidth + 1)
          .map((chip) => chip.textContent),
      );
      assert.deepEqual(cut, [], `at ${width}`);
    }, { viewport: { width, height: 844 } });
  }
});

test("while a file is dragged over the first screen of a phone, all of it can be scrolled by keys", async () => {
  await withPage(browser, async (page) => {
    await page.evaluate(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["x"], "x.pt"));
      for (const event of ["dragenter", "dragover"]) document.body.dispatchEvent(new DragEvent(event, { bubbles: true, cancelable: true, dataTransfer }));
    });
    await page.waitForSelector("#start.over");
    assert.deepEqual(await accessibility(page, "dragged", ["scrollable-region-focusable"]), []);
  }, { viewport: { width: 390, height: 844 } });
});

test("a tensor with a NaN is compared in its finite values", async () => {
  const later = join(folder, "later.safetensors");
  trainedCheckpoint(later, 16, 96, 100);
  await withPage(browser, async (page) => {
    await open(page, trained);
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(later);
    await page.waitForSelector("#save-report:not([disabled])");
    await page.fill(".filterbar input", "layers.5.mlp.up");
    await page.locator("#compare .row[data-key*='layers.5.mlp.up_proj']").first().click();
    await page.waitForFunction(() => /Element differences/.test(document.querySelector("#compare .insp").textContent));
    const text = await page.textContent("#compare .insp");
    assert.doesNotMatch(text, /undefined|NaN %/);
    assert.match(text, /max \|B − A\|0\.\d+.*relative change0\.\d+cosine0\.\d+NaN in A · B1 · 1/);
  }, { viewport: { width: 1440, height: 900 } });
});

test("statistics of large integers do not overlap", async () => {
  const large = Buffer.from(Int32Array.from([-2102381765, -1901732434, -1901732434, 1213601910]).buffer);
  const path = written("integers.safetensors", stored({ integers: ["I32", [2, 2], large] }));
  for (const width of [390, 768, 1440]) {
    await withPage(browser, async (page) => {
      await open(page, path);
      await page.click('.row[data-key="integers"]');
      await page.waitForSelector("#statistics .two");
      const overlaps = await page.$$eval("#statistics .two > div", (pairs) => pairs.filter((pair) => {
        const [label, number] = [pair.children[0], pair.querySelector("button")].map((it) => {
          const range = document.createRange();
          range.selectNodeContents(it);
          return range.getBoundingClientRect();
        });
        const own = pair.getBoundingClientRect();
        return number.left < label.right || number.right > own.right + 1 || number.left < own.left;
      }).map((pair) => pair.textContent));
      assert.deepEqual(overlaps, [], `${width}`);
    }, { viewport: { width, height: 900 } });
  }
});
