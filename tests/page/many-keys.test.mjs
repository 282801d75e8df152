// 100,000 keys: the document contains only the visible parts of tree and table, and the filter finds the right keys.
// measure.mjs measures the times.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, command, launch, withPage } from "./harness.mjs";
import { safetensors } from "./make.mjs";

const COUNT = 100_000;
const MOST = 5_000;

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-many-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function open(page, keys) {
  const path = join(folder, `${keys[0]}.safetensors`);
  writeFileSync(path, safetensors(keys));
  await page.setInputFiles("#choose-files", path);
  await page.waitForSelector("#work .row", { timeout: 120_000 });
}

const elements = (page) => page.evaluate(() => document.getElementsByTagName("*").length);

/** Describes the selected line of the tree, once there is one. */
async function selected(page) {
  const chosen = '[role="treeitem"][aria-selected="true"]';
  await page.waitForSelector(chosen);
  return page.$eval(chosen, (line) => ({
    name: line.querySelector(".t").textContent,
    place: `${line.getAttribute("aria-posinset")} of ${line.getAttribute("aria-setsize")}`,
    level: line.getAttribute("aria-level"),
    open: line.getAttribute("aria-expanded"),
    shown: (({ top, bottom }, around) => top >= around.top && bottom <= around.bottom)(
      line.getBoundingClientRect(),
      line.closest('[role="tree"]').getBoundingClientRect(),
    ),
  }));
}

const focusedRole = (page) => page.evaluate(() => document.activeElement.getAttribute("role"));

/** Types into the filter, and waits for the expected number of keys. */
async function hits(page, text, expected) {
  await page.fill("#filter", text);
  const hitCount = () => page.evaluate(() => document.querySelector(".hits")?.textContent.match(/^([\d\s,.]+) keys?$/)?.[1]);
  await becomes(async () => Number((await hitCount())?.replace(/\D/g, "")), expected);
}

test("the first keys are shown while the rest is being read", { timeout: 300_000 }, async () => {
  const keys = Array.from({ length: COUNT }, (_, at) => `first_${at}_weight`);
  await withPage(browser, async (page) => {
    await page.evaluate(() => {
      // The keys are arranged in slices; between two, the page waits for the next task.
      window.slices = 0;
      const plain = window.setTimeout;
      window.setTimeout = (run, delay, ...more) => {
        if (delay === 0 && document.querySelector("#loading .row")) window.slices++;
        return plain(run, delay, ...more);
      };
      const look = () => {
        const rows = document.querySelectorAll("#loading .row");
        if (rows.length && !document.querySelector("#work")) {
          window.early = { rows: rows.length, first: rows[0].querySelector(".ck").title, inert: rows[0].closest("[inert]") !== null };
        }
      };
      new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    });
    await open(page, keys);
    const early = await page.evaluate(() => window.early);
    assert.ok(early, "no rows were shown early");
    assert.ok(early.rows > 10 && early.rows <= 100, `${early.rows} rows`);
    assert.deepEqual([early.first, early.inert], [keys[0], true]);
    const slices = await page.evaluate(() => window.slices);
    assert.ok(slices > 10, `the page handled input ${slices} times while it arranged the keys`);
    // Then all keys are listed.
    assert.equal(await page.getAttribute('[role="treeitem"]', "aria-setsize"), String(COUNT));
  });
});

test("flat keys: arrow keys move through the tree, and the filter counts", { timeout: 300_000 }, async () => {
  const keys = Array.from({ length: COUNT }, (_, at) => `tensor_${at}_weight`);
  await withPage(browser, async (page) => {
    await open(page, keys);
    assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);

    await page.focus('[role="tree"]');
    await page.keyboard.press("ArrowDown");
    await becomes(() => selected(page), { name: keys[0], place: `1 of ${COUNT}`, level: "1", open: null, shown: true });
    await page.keyboard.press("End");
    await becomes(() => selected(page), { name: keys.at(-1), place: `${COUNT} of ${COUNT}`, level: "1", open: null, shown: true });
    await page.waitForSelector(`.row.sel .ck[title="${keys.at(-1)}"]`);
    await page.keyboard.press("ArrowUp");
    await becomes(async () => (await selected(page)).name, keys.at(-2));
    await page.keyboard.press("PageUp");
    const up = async () => Number((await selected(page)).place.split(" ")[0]);
    await becomes(async () => (await up()) < COUNT - 10, true);
    assert.ok((await up()) > COUNT - 100, `${await up()}`);
    await page.keyboard.press("Home");
    await becomes(async () => (await selected(page)).place, `1 of ${COUNT}`);
    assert.equal(await focusedRole(page), "tree");
    await becomes(() => page.getAttribute('[role="tree"]', "aria-activedescendant"), "branch-0");

    // The wheel scrolls to other lines; focus and selection stay.
    await page.$eval('[role="tree"]', (tree) => (tree.scrollTop = tree.scrollHeight / 2));
    await page.waitForSelector(`[aria-posinset="${COUNT / 2}"]`);
    assert.equal(await focusedRole(page), "tree");
    await becomes(() => page.getAttribute('[role="tree"]', "aria-activedescendant"), null);
    await page.keyboard.press("ArrowDown");
    await becomes(async () => (await selected(page)).name, keys[1]);
    assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);

    const count = (test) => keys.filter(test).length;
    await hits(page, "77", count((key) => /(?<!\d)77(?!\d)/.test(key)));
    await hits(page, "77 -weight", 0);
    await hits(page, "*_777*", count((key) => /_777/.test(key)));
    await hits(page, "/_9.*3_/", count((key) => /_9.*3_/.test(key)));
    assert.equal(await page.$$eval("#work .row", (rows) => rows.length > 10 && rows.length < 200), true);
    // A new filter replaces an expression that is being evaluated.
    await page.fill("#filter", "/1.*1/");
    await hits(page, "tensor_123_", 1);
    await page.waitForTimeout(200);
    assert.equal(await page.textContent(".hits"), "1 key");
    assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);
  });
});

test("layers: lines stay open while scrolling", { timeout: 300_000 }, async () => {
  // All names of layers differ: nothing folds, so the tree has a line for each part.
  const part = (at) => `${at & 4 ? "even" : "odd"}_${Math.floor(at / 4)}`;
  const keys = Array.from({ length: COUNT }, (_, at) => `model.layers.${Math.floor(at / 4)}.${part(at)}.${"abcd"[at % 4]}.weight`);
  await withPage(browser, async (page) => {
    await open(page, keys);
    await page.focus('[role="tree"]');
    for (const key of ["ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
    await becomes(async () => (await selected(page)).level, "2");
    const layers = await selected(page);
    assert.equal(layers.open, "true");
    assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);
    await page.keyboard.press("ArrowRight");
    await becomes(async () => (await selected(page)).place, `1 of ${COUNT / 4}`);
    await page.keyboard.press("ArrowRight");
    await becomes(async () => (await selected(page)).open, "true");
    await page.keyboard.press("End");
    await becomes(async () => (await selected(page)).place, `${COUNT / 4} of ${COUNT / 4}`);
    await page.keyboard.press("Home");
    for (const key of ["ArrowDown", "ArrowDown"]) await page.keyboard.press(key);
    const first = async () => (({ place, open, shown }) => [place, open, shown])(await selected(page));
    await becomes(first, [`1 of ${COUNT / 4}`, "true", true]);
    // Collapses the line, then moves to its parent.
    await page.keyboard.press("ArrowLeft");
    await becomes(async () => (await selected(page)).open, "false");
    await page.keyboard.press("ArrowLeft");
    await becomes(() => selected(page), { ...layers, shown: true });
    await page.keyboard.press("ArrowLeft");
    await becomes(async () => (await selected(page)).open, "false");
    await becomes(() => page.$$eval('[role="treeitem"]', (lines) => lines.length), 2);
    await hits(page, "odd kind:tensor", keys.filter((key) => key.includes("odd")).length);
    assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);
  });
});

for (const kind of ["pt", "npz", "mdl"]) {
  test(`only visible rows of ${COUNT} keys of .${kind} are in the document`, { timeout: 300_000 }, async () => {
    const keys = Array.from({ length: COUNT }, (_, at) => `${kind}_${at}_weight`);
    const source = join(folder, `${kind}-source.safetensors`);
    writeFileSync(source, safetensors(keys));
    const path = join(folder, `many.${kind}`);
    execFileSync(command, ["convert", source, path], { stdio: "pipe" });
    await withPage(browser, async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row", { timeout: 120_000 });
      assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);
      await hits(page, "77", keys.filter((key) => /(?<!\d)77(?!\d)/.test(key)).length);
      assert.ok((await elements(page)) < MOST, `${await elements(page)} elements`);
    });
  });
}
