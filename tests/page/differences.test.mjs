// Tensor diffs, norms by layer, renamed tensors and values of run folders: the numbers equal the command's.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, becomes, command, drop, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-differences-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const matrix = (scale, odd) =>
  Array.from({ length: 24 }, (_, row) =>
    Array.from({ length: 16 }, (_, column) => (row === 17 && column === 5 && odd !== undefined ? odd : Math.sin(row * 16 + column) * scale)),
  );

/** Two checkpoints: layer 1 differs, layer 2 differs most, one value is NaN in B, and two tensors have other keys. */
const A = () => floats({ "h.0.w": matrix(1), "h.1.w": matrix(1), "h.2.w": matrix(1), "n.w": matrix(1), "old.a": [1, 2, 3], "old.b": [4, 5] });
const B = () => floats({ "h.0.w": matrix(1), "h.1.w": matrix(1.5), "h.2.w": matrix(3, 40), "n.w": matrix(1, NaN), "new.a": [1, 2, 3], "new.b": [4, 6] });

async function compare(page) {
  await drop(page, "body", [{ name: "a.safetensors", bytes: A() }]);
  await page.waitForSelector("#work .row");
  const given = Buffer.from(B()).toString("base64");
  await page.evaluate(
    ([base64, clientX]) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], "b.safetensors"));
      for (const event of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(event, { bubbles: true, cancelable: true, dataTransfer, clientX }));
      }
    },
    [given, page.viewportSize().width * 0.75],
  );
  await page.waitForSelector("#save-report:not([disabled])");
}

/** Waits until a text matches. */
async function waitForText(read, pattern) {
  let text;
  for (const until = Date.now() + 20_000; ; await new Promise((done) => setTimeout(done, 50))) {
    text = await read();
    if (pattern.test(text) || Date.now() > until) return assert.match(text, pattern);
  }
}

const row = (page, key) => page.click(`#compare .row[data-key="${key}"]`);

async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
  return readFileSync(await download.path(), "utf8");
}

function files() {
  const paths = ["a.safetensors", "b.safetensors"].map((name) => join(folder, name));
  writeFileSync(paths[0], A());
  writeFileSync(paths[1], B());
  return paths;
}

test("figures of a comparison are not cut next to an empty column", async () => {
  const small = (step) => Array.from({ length: 64 }, (_, at) => 1 + step * Math.sin(at));
  const large = (odd, step) => floats({ n: small(step), w: Array.from({ length: 352 }, (_, row) => Array.from({ length: 128 }, (_, column) => (row === 120 && column === 57 ? odd : Math.sin(row + column)))) });
  const [a, b] = [large(0, 0), large(NaN, 0.0169)];
  await withPage(
    browser,
    async (page) => {
      await drop(page, "body", [{ name: "a.safetensors", bytes: a }, { name: "b.safetensors", bytes: b }]);
      for (const box of await page.locator("#rail input").all()) await box.check();
      await page.click("#compare-ticked");
      await page.waitForSelector("#save-report:not([disabled])");
      const cells = await page.$$eval("#compare .row .cp, #compare .row .cb, #compare .row .cv .tag", (cells) =>
        cells.map((cell) => [cell.textContent, cell.scrollWidth <= cell.clientWidth]),
      );
      for (const figure of [/^undefined$/, /^1 of /, /^0\.0\d{4}$/]) assert.ok(cells.some(([text]) => figure.test(text)), `${figure}: ${JSON.stringify(cells)}`);
      assert.deepEqual(cells.filter(([, whole]) => !whole), []);
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

test("a selected pair shows its tensor diff, with the numbers of the command (core)", async () => {
  const { stdout } = spawnSync(command, ["diff", ...files(), "--closer", "h.2.w", "--json", "--bins", "48"], { encoding: "utf8" });
  const expected = JSON.parse(stdout).tensors[0];
  await withPage(browser, async (page) => {
    await compare(page);
    await page.locator(".filterbar").getByRole("button", { name: "fold layers" }).first().click();
    await row(page, "h.2.w");
    await page.waitForSelector("#closer #where");
    const csv = (await saved(page, page.locator("#outlines").getByRole("button", { name: "CSV" }))).trim().split("\n").slice(1);
    const counts = csv.map((line) => line.split(",").slice(2).map(Number));
    assert.deepEqual(counts.map(([a]) => a), expected.distributions.left);
    assert.deepEqual(counts.map(([, b]) => b), expected.distributions.right);
    const wide = (selector) => page.locator(selector).boundingBox().then((box) => box.width);
    assert.ok((await wide("#differences svg")) > 0.8 * (await wide("#differences")), "the histogram of the differences fills its container");
    const svg = await saved(page, page.locator("#outlines").getByRole("button", { name: "SVG" }));
    assert.match(svg, /stroke-dasharray="6 3"/);
    assert.match(await page.getAttribute("#outlines svg", "aria-label"), /A and B: % of values per bin by value\. A: .* B: /);
    // The largest difference is where the command says; a click selects its cell.
    const [down, across] = expected.difference.abs_max_at;
    const map = page.locator("#where .map");
    const box = await map.boundingBox();
    await map.click({ position: { x: (across + 0.5) * (box.width / 16), y: (down + 0.5) * (box.height / 24) } });
    await waitForText(() => page.textContent("#where .read"), /\|B − A\| \d.* at \[17, 5\]/);
    assert.deepEqual(await accessibility(page, "differences"), []);
    await page.click("#go-there");
    await page.waitForSelector("#work");
    await page.waitForSelector(".vals .here");
    const here = Number(await page.textContent(".vals .here"));
    assert.ok(Math.abs(here - matrix(1)[17][5]) < 1e-3, here);
  });
});

test("NaN on one side has a mark of its own, and a location", async () => {
  await withPage(
    browser,
    async (page) => {
      await compare(page);
      await row(page, "n.w");
      await page.waitForSelector("#closer #where");
      await waitForText(() => page.textContent("#closer"), /NaN in both 0, in A only 0, in B only 1/);
      const map = page.locator("#where .map");
      const box = await map.boundingBox();
      await map.click({ position: { x: 5.5 * (box.width / 16), y: 17.5 * (box.height / 24) } });
      await waitForText(() => page.textContent("#where .read"), /NaN or infinite at \[17, 5\]/);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= 390, `${wide} pixels wide`);
    },
    { viewport: { width: 390, height: 844 } },
  );
});

test("norms and changes by layer are drawn, and the table sorts by change", async () => {
  const { stdout } = spawnSync(command, ["diff", ...files(), "--by-layer", "--json"], { encoding: "utf8" });
  const [role] = JSON.parse(stdout).roles;
  await withPage(browser, async (page) => {
    await compare(page);
    await page.locator(".filterbar").getByRole("button", { name: "fold layers" }).first().click();
    await page.locator(".head").getByRole("button", { name: "relative change" }).first().click();
    const keys = await page.$$eval("#compare .row .ck", (cells) => cells.map((cell) => cell.textContent));
    assert.ok(keys.indexOf("h.2.w") < keys.indexOf("h.1.w"), keys.join());
    await row(page, "h.1.w");
    await page.waitForSelector("#by-layer svg");
    const lines = (await saved(page, page.locator("#by-layer").getByRole("button", { name: "CSV" }))).trim().split("\n");
    assert.equal(lines[0], "layer,A,B");
    assert.deepEqual(lines.slice(1).map((line) => line.split(",").map(Number)), role.layers.map((one) => [one.layer, one.left_norm, one.right_norm]));
    await page.locator("#by-layer").getByRole("radio", { name: "change" }).first().click();
    const change = (await saved(page, page.locator("#by-layer").getByRole("button", { name: "CSV" }))).trim().split("\n");
    assert.deepEqual(change.slice(1).map((line) => Number(line.split(",")[1])), role.layers.map((one) => one.change));
  });
});

test("renamed tensors are found, compared by their new keys, and saved as the command prints them", async () => {
  const list = execFileSync(command, ["diff", ...files(), "--renames"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  await withPage(browser, async (page) => {
    await compare(page);
    await page.click("#find-renames");
    await waitForText(() => page.textContent("#renames"), /2 tensors of A have another key in B: 1 with identical bytes, 1 matched by shape and order \(a guess\)/);
    assert.equal(await saved(page, page.locator("#save-renames")), list);
    await page.click("#use-renames");
    await page.waitForSelector("#save-report:not([disabled])");
    await waitForText(() => page.textContent("#verdict"), /1 renamed/);
    await page.click("#convert-renames");
    await page.waitForSelector(".sheet");
    const rules = await page.$$eval(".sheet textarea", (areas) => areas.map((area) => area.value).join("\n"));
    assert.match(rules, /\^old\\\.a\$=>new\.a/);
  });
});

test("the values of a run folder are read on request, and plotted over the steps", async () => {
  const run = join(folder, "run");
  mkdirSync(run);
  // Files are named like those of a trainer; the format is recognised by content.
  const values = { 10: [3, 4], 20: [6, 8], 30: [NaN, 1] };
  for (const [step, pair] of Object.entries(values)) writeFileSync(join(run, `checkpoint_${step}.mdl`), floats({ "model.h.0.w": pair, "model.h.1.w": [0] }));
  writeFileSync(join(run, "checkpoint_40.mdl"), "cut");
  const expected = JSON.parse(execFileSync(command, ["runs", run, "--values", "--json"], { encoding: "utf8" }));
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", run);
    await page.waitForSelector("#read-run:not([disabled])");
    assert.match(await page.textContent("#read-run"), /^Read values of 3 checkpoints, /);
    await page.click("#read-run");
    await page.waitForSelector("#run-values svg");
    await becomes(() => page.locator("#read-run").count(), 0);
    await becomes(() => page.locator("#stop-values").count(), 0);
    const lines = (await saved(page, page.locator("#run-values").getByRole("button", { name: "CSV" }))).trim().split("\n");
    assert.deepEqual(lines[0].split(","), ["step", expected.checkpoints[0].groups[0].group, "NaN or infinite", "incomplete"]);
    const rows = expected.checkpoints.map(({ step, groups: [group] }) => [step, group?.norm ?? "", group ? group.nan : ""].join());
    const cells = lines.slice(1).map((line) => line.replace(/\.0,/, ",").split(","));
    assert.deepEqual(cells.map((line) => line.slice(0, 3).join()), rows);
    assert.deepEqual(cells.filter((line) => line.slice(3).join()).map(([step]) => step), ["30"], "norms without a NaN are incomplete");
    assert.match(await page.getAttribute("#run-values svg", "aria-label"), /NaN or infinite: 1 at 30\. No values at 40: /);
    assert.equal(await page.locator("#run-values .bar").count(), 1);
    assert.equal(await page.locator("#run-values .gap").count(), 1);
    await page.locator("#run-values").getByRole("radio", { name: "role" }).first().click();
    await becomes(() => page.locator("#run-values .chips").getByRole("button", { name: "model.h.*.w" }).count(), 1);
    assert.deepEqual(await accessibility(page, "differences"), []);
  });
});
