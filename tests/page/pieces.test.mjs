// Checkpoints of many ranks: the line about them, the map by rank, and the picture of the pieces of a tensor.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, becomes, command, fixture, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-pieces-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

async function open(page, name) {
  await page.setInputFiles("#choose-folder", fixture(name));
  await page.waitForSelector("#work .row");
}

async function select(page, key) {
  await page.fill("#filter", key);
  await page.keyboard.press("Enter");
  await page.waitForSelector(`.insp[data-key="${key}"] #pieces svg`);
}

/** Returns what the command says about a folder. */
const byCommand = (...words) => execFileSync(command, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });

/** Returns the leaves of a folder with their pieces, by key. */
function leaves(name) {
  const { entries } = JSON.parse(byCommand("ls", fixture(name), "--json"));
  return Object.fromEntries(entries.map((leaf) => [leaf.key, leaf]));
}

for (const [name, line] of [
  ["sharded/verl_w4_bf16_uneven", /^FSDP, 4 ranks, \d+ tensors$/],
  ["sharded/dcp_w4_mesh2", /^DCP, \d ranks, \d+ tensors$/],
  ["deepspeed/z3_bf16_w2", /^DeepSpeed ZeRO \(stage 3\), 2 ranks, \d+ tensors$/],
]) {
  test(`a dropped folder opens as one checkpoint, with a line about it: ${name}`, () =>
    withPage(browser, async (page) => {
      await open(page, name);
      assert.match(await page.textContent("#joined"), line);
      // The map is coloured by rank until the user chooses the dtype.
      const colors = () => page.$$eval(".tapeview rect[fill]", (all) => new Set(all.map((it) => it.getAttribute("fill")).filter((it) => it.startsWith("oklch"))).size);
      assert.ok((await colors()) > 1);
      await page.getByRole("radiogroup", { name: "Colours of the map" }).getByRole("radio", { name: "dtype" }).click();
      await becomes(colors, 0);
    }));
}

test("the pieces of a tensor are drawn, and a click shows the place and the statistics of one", () =>
  withPage(browser, async (page) => {
    const name = "sharded/verl_w4_tp_fsdp";
    const all = leaves(name);
    const key = Object.keys(all).find((key) => all[key].pieces?.length === 4);
    assert.ok(key, "a tensor in four pieces");
    const [piece] = all[key].pieces;
    await open(page, name);
    await select(page, key);
    assert.equal(await page.getAttribute("#pieces", "data-pieces"), "4");
    await page.locator(".piecemap svg").click({ position: { x: 4, y: 4 } });
    await page.waitForSelector("#piece-statistics");
    const facts = await page.textContent("#piece");
    assert.ok(facts.includes(`rank ${piece.rank}`), facts);
    assert.ok(facts.includes(piece.file.split("/").pop()), facts);
    assert.ok(facts.replaceAll(",", "").includes(String(piece.offset)), facts);
    const slice = piece.at.map((at, dim) => `${at}:${at + piece.shape[dim]}`).join(", ");
    const { values } = JSON.parse(byCommand("show", fixture(name), `${key}[${slice}]`, "--json")).entries[0];
    assert.equal(values.length, piece.shape.reduce((all, dim) => all * dim));
    const mean = values.reduce((sum, value) => sum + value) / values.length;
    const shown = await page.$$eval("#piece-statistics dt, #piece-statistics dd", (all) => all.map((it) => it.textContent));
    const drawn = Number(shown[shown.indexOf("mean") + 1].replace("\u2212", "-"));
    assert.ok(Math.abs(drawn - mean) <= Math.abs(mean) * 1e-3, `${drawn}, expected ${mean}`);
    // Arrow keys select the others.
    await page.focus(".piecemap");
    await page.keyboard.press("End");
    await page.waitForSelector('#piece[data-piece="3"]');
    assert.deepEqual(await accessibility(page, "pieces"), []);
  }));

test("a missing rank is drawn as missing, and the line says it", () =>
  withPage(browser, async (page) => {
    await open(page, "sharded/broken_verl_rank_missing");
    assert.match(await page.textContent("#joined .w-warn"), /incomplete: rank \d+ of \d+ is missing/);
    await select(page, "model.embed_tokens.weight");
    assert.equal(await page.locator(".piecemap .gone").count(), 1);
    // The missing piece has no statistics; the others have.
    const count = Number(await page.getAttribute("#pieces", "data-pieces"));
    await page.focus(".piecemap");
    let missing = 0;
    for (let at = 0; at < count; at++) {
      await page.keyboard.press(at ? "ArrowDown" : "Home");
      await page.waitForSelector(`#piece[data-piece="${at}"]`);
      if (/missing/.test(await page.textContent("#piece"))) missing++;
      else await page.waitForSelector("#piece-statistics");
    }
    assert.ok(missing > 0 && missing < count, `${missing} of ${count}`);
  }));

test("copies of other ranks are named", () =>
  withPage(browser, async (page) => {
    await open(page, "sharded/verl_w4_hsdp");
    const key = Object.entries(leaves("sharded/verl_w4_hsdp")).find(([, leaf]) => leaf.pieces?.length > 1)[0];
    await select(page, key);
    await page.focus(".piecemap");
    await page.keyboard.press("Home");
    await page.waitForSelector("#piece");
    assert.match(await page.textContent("#piece"), /copiesrank \d/);
  }));

test("layers in one tensor are written as one key for each, as by the command", () =>
  withPage(browser, async (page) => {
    const name = "sharded/mcore_tp2";
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await open(page, name);
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "safetensors" }).first().click();
    await page.check("#unstack");
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    assert.match(await page.textContent(".cmdline"), /--unstack/);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
    const output = join(folder, "unstacked.safetensors");
    execFileSync(command, ["convert", fixture(name), output, "--unstack", "--lossy"], { stdio: "pipe" });
    const [written, expected] = [readFileSync(await download.path()), readFileSync(output)];
    assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
  }));

test("objects of Cerebras that were copied from S3 open as one checkpoint", () =>
  withPage(browser, async (page) => {
    const source = fixture("cerebras_s3/minimal");
    for (const { key, file } of JSON.parse(readFileSync(join(source, "objects.json"), "utf8")).objects) {
      const place = join(folder, "s3", key);
      mkdirSync(dirname(place), { recursive: true });
      copyFileSync(join(source, file), place);
    }
    await page.setInputFiles("#choose-folder", join(folder, "s3"));
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent(".top .badge"), /Cerebras S3/);
    const expected = JSON.parse(readFileSync(fixture("cerebras_s3/minimal.expected.json"), "utf8"));
    const [key] = expected.entries.find(([, entry]) => entry.kind === "tensor" && entry.nbytes > 0);
    await page.fill("#filter", key);
    await page.keyboard.press("Enter");
    await page.waitForSelector(".insp .vals td");
  }));

for (const [scheme, width] of [["light", 1440], ["dark", 1440], ["light", 360], ["dark", 360]]) {
  test(`the picture fits its pane: ${scheme}, ${width} px`, () =>
    withPage(
      browser,
      async (page) => {
        await open(page, "sharded/verl_w4_tp_fsdp");
        const all = leaves("sharded/verl_w4_tp_fsdp");
        const key = Object.keys(all).find((key) => all[key].pieces?.length === 4);
        await page.fill("#filter", key);
        await page.keyboard.press("Enter");
        await page.waitForSelector("#work .row");
        if (width < 720) await page.getByRole("tab", { name: "Tensor" }).or(page.getByRole("button", { name: "Tensor" })).first().click();
        await page.waitForSelector("#pieces svg path");
        const [box, pane] = [await page.locator(".piecemap svg").boundingBox(), await page.locator(".insp").boundingBox()];
        assert.ok(box.x >= pane.x && box.x + box.width <= pane.x + pane.width + 1, JSON.stringify([box, pane]));
        assert.deepEqual(await accessibility(page, "pieces of ranks"), []);
        if (process.env.STATELENS_SHOTS) await page.screenshot({ path: join(process.env.STATELENS_SHOTS, `screens-pieces-${scheme}-${width}.png`) });
      },
      { colorScheme: scheme, viewport: { width, height: 900 } },
    ));
}
