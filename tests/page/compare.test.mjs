// Comparisons: the page's results equal those of `statelens diff` and `statelens check`.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, command, drop, dropped, fixture, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";

// The command names commands where the page names its controls.
const pageWords = (text) => text.replaceAll("`statelens upgrade`", "\u201cUpgrade\u201d").replaceAll("`", "");

const GPT = "cerebras/v2.10.0/gpt_small.mdl";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-compare-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Returns the command's output. Status 1 means that the checkpoints differ, or that one would not load. */
function run(...args) {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8" });
  assert.ok(status === 0 || status === 1, stderr);
  return stdout;
}

/** Returns a file of the test's folder in the form that `drop` takes. */
const made = (name) => ({ name, bytes: readFileSync(join(folder, name)) });

/** Writes the model of a small GPT with some changed weights and without one bias; returns its path. */
function changed() {
  const path = join(folder, "changed.safetensors");
  run("convert", fixture(GPT), path, "--states", "model", "--exclude", "model.model.ln_f.bias", "--lossy", "--force");
  const bytes = readFileSync(path);
  const header = Number(bytes.readBigUInt64LE(0));
  const json = JSON.parse(bytes.subarray(8, 8 + header).toString());
  for (const [key, { data_offsets: [at] }] of Object.entries(json).filter(([key]) => /blocks\.\d+\.(qkv|fc)/.test(key))) {
    const value = bytes.readFloatLE(8 + header + at + 8);
    bytes.writeFloatLE(value * 1.5 + key.length, 8 + header + at + 8);
  }
  writeFileSync(path, bytes);
  return path;
}

/** Drops files on the right half of the window, which compares them with the open checkpoint. */
async function compareWith(page, files) {
  const width = page.viewportSize().width;
  const given = files.map(({ name, bytes }) => ({ name, base64: Buffer.from(bytes).toString("base64") }));
  await page.evaluate(
    ([given, clientX]) => {
      const dataTransfer = new DataTransfer();
      for (const { name, base64 } of given) {
        dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], name));
      }
      for (const event of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(event, { bubbles: true, cancelable: true, dataTransfer, clientX }));
      }
    },
    [given, width * 0.75],
  );
  await page.waitForSelector("#compare");
}

/** Waits until the comparison is complete, and returns its report. */
async function report(page) {
  await page.waitForSelector("#save-report:not([disabled])");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-report")]);
  return readFileSync(await download.path(), "utf8");
}

/** Returns the number of keys with a mark, as the page counts them. */
const count = (page, word) =>
  page.$$eval("#verdict .fig", (figures, word) => {
    const figure = figures.find((figure) => figure.textContent.endsWith(word));
    return figure ? Number(figure.querySelector("b").textContent.replaceAll(",", "")) : 0;
  }, word);

for (const [title, first, second, options, choose] of [
  ["a 1.7 file and its repair", "cerebras/compat/synthetic_1.7.mdl", "cerebras/compat/synthetic_1.7_fixed.mdl", []],
  ["one state in two formats", GPT, "cerebras/v2.10.0/gpt_small.pt", []],
  ["float32 and bfloat16", GPT, "cerebras/v2.10.0/gpt_small_bf16.mdl", []],
  [
    "float32 and bfloat16, as numbers within a tolerance",
    GPT,
    "cerebras/v2.10.0/gpt_small_bf16.mdl",
    ["--op", "allclose", "--rtol", "0.1", "--atol", "0.05", "--ignore-dtype"],
    async (page) => {
      await page.keyboard.press("m");
      await page.locator(".matching").getByRole("radio", { name: "close" }).first().click();
      await page.getByRole("textbox", { name: "rtol" }).fill("0.1");
      await page.getByRole("textbox", { name: "atol" }).fill("0.05");
      await page.locator("#ignore-dtype").check();
    },
  ],
]) {
  test(`${title}: the report equals the command's`, async () => {
    const expected = run("diff", fixture(first), fixture(second), "--json", ...options);
    await withPage(browser, async (page) => {
      await drop(page, "body", [dropped(first)]);
      await page.waitForSelector("#work .row");
      await compareWith(page, [dropped(second)]);
      await page.waitForSelector("#save-report:not([disabled])");
      await choose?.(page);
      assert.equal(await report(page), expected);
      const { matches, differences } = JSON.parse(expected);
      assert.match(await page.textContent("#verdict"), matches ? /They match/ : /They differ/);
      const keys = (what) => new Set(differences.filter((one) => what.includes(one.what)).map((one) => one.key)).size;
      assert.equal(await count(page, "added"), keys(["only_right"]));
      assert.equal(await count(page, "removed"), keys(["only_left"]));
      assert.equal(await count(page, "shape"), keys(["shape"]));
      assert.equal(await count(page, "kind"), keys(["type", "dtype"]));
      assert.equal(await count(page, "changed"), keys(["value", "elements"]));
    });
  });
}

test("the table and the details show the differences of the report (core)", async () => {
  const path = changed();
  const expected = run("diff", fixture(GPT), path, "--json");
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped(GPT)]);
    await page.waitForSelector("#work .row");
    await compareWith(page, [made("changed.safetensors")]);
    assert.equal(await report(page), expected);
    const found = JSON.parse(expected).differences.filter((one) => one.what === "elements");
    assert.ok(found.length >= 4, `${found.length} tensors differ`);
    await page.locator(".chips").getByRole("button", { name: "changed" }).first().click();
    await page.keyboard.press("l");
    const cells = await page.$$eval("#compare .row", (rows) => rows.map((row) => row.querySelector(".ck").title));
    assert.deepEqual(cells, found.map((one) => one.key));
    for (const one of found) {
      const counts = `differ${one.differing.toLocaleString("en")} of ${one.elements.toLocaleString("en")}first at[${one.first.join(", ")}]`;
      const isShown = (texts) => texts.every((text) => document.querySelector("#compare .insp").textContent.includes(text));
      await page.waitForFunction(isShown, [one.key, counts]);
      const facts = await page.$eval("#compare .insp", (pane) => pane.textContent);
      assert.ok(facts.replaceAll("\u2212", "-").includes(one.cosine.toFixed(7)), `${one.cosine} in ${facts}`);
      await page.keyboard.press("j");
    }
  });
});

test("rows show the command's histogram of differences, and folds show the sum", async () => {
  // Layers 0 to 2 change in both directions, layer 3 only upwards. `few` has too few values for a histogram.
  const rows = (of) => Array.from({ length: 64 }, (_, row) => Array.from({ length: 64 }, (_, column) => of(64 * row + column)));
  const model = (change) => {
    const layers = [0, 1, 2, 3].map((layer) => [`h.${layer}.w`, rows((at) => at / 4096 + change * (layer === 3 ? at % 7 : (at % 7) - 3) * 0.01)]);
    return floats({ ...Object.fromEntries(layers), few: [1, 2, 3 + change], same: [1, 2, 3] });
  };
  writeFileSync(join(folder, "before.safetensors"), model(0));
  writeFileSync(join(folder, "after.safetensors"), model(1));
  const { differences } = JSON.parse(run("diff", join(folder, "before.safetensors"), join(folder, "after.safetensors"), "--json"));
  const counted = Object.fromEntries(differences.map((one) => [one.key, one.spread]));
  assert.equal(counted.same, undefined);
  const drawn = (page, key) =>
    page.$eval(`#compare .row:has(.ck[title="${key}"]) .cv`, (cell) => ({
      bars: [...(cell.querySelector(".deltas .bars")?.getAttribute("d") ?? "").matchAll(/v-([\d.]+)h/g)].map(([, height]) => Number(height)),
      label: cell.querySelector(".deltas")?.getAttribute("aria-label") ?? "",
      text: cell.textContent,
    }));
  const agrees = async (page, key, counts) => {
    const { bars, label } = await drawn(page, key);
    const most = Math.max(...counts);
    assert.equal(bars.length, counts.length, key);
    bars.forEach((height, at) => {
      const wanted = counts[at] === 0 ? 1 : Math.max((counts[at] / most) * 15, 1.5);
      assert.ok(Math.abs(height - wanted) <= 0.051, `${key}, bar ${at}: ${height}, expected ${wanted}`);
    });
    const all = counts.reduce((sum, count) => sum + count, 0);
    const below = counts.slice(0, (counts.length - 1) / 2).reduce((sum, count) => sum + count, 0);
    assert.ok(label.includes(`${Math.round((below / all) * 100)} % below`), label);
  };
  await withPage(browser, async (page) => {
    await drop(page, "body", [made("before.safetensors")]);
    await page.waitForSelector("#work .row");
    await compareWith(page, [made("after.safetensors")]);
    await page.waitForSelector("#save-report:not([disabled])");
    const sum = counted["h.0.w"].counts.map((_, at) => [0, 1, 2, 3].reduce((sum, layer) => sum + counted[`h.${layer}.w`].counts[at], 0));
    await agrees(page, "h.0\u20133.w", sum);
    await page.keyboard.press("l");
    await page.waitForSelector('#compare .row .ck[title="h.3.w"]');
    for (const layer of [0, 1, 2, 3]) await agrees(page, `h.${layer}.w`, counted[`h.${layer}.w`].counts);
    const { counts, within } = counted["h.3.w"];
    assert.ok(within > 0 && counts.slice(0, 16).every((count) => count === 0), "only upwards");
    const few = await drawn(page, "few");
    assert.deepEqual([few.bars, /1 of 3 differ/.test(few.text)], [[], true], few.text);
  });
});

test("at 320 pixels long names of both sides are shown to the end", () => {
  const [first, second] = [1000, 2000].map((step) => ({ ...dropped(GPT), name: `a-model-with-a-long-name-step-${step}.mdl` }));
  return withPage(
    browser,
    async (page) => {
      await drop(page, "body", [first]);
      await page.waitForSelector("#work .row");
      await compareWith(page, [second]);
      await page.waitForSelector("#save-report:not([disabled])");
      const sizes = await page.$$eval(".ab .name", (names) => names.map((name) => [name.scrollWidth - name.clientWidth, name.scrollHeight - name.clientHeight]));
      assert.deepEqual(sizes, [[0, 0], [0, 0]]);
    },
    { viewport: { width: 320, height: 568 } },
  );
});

test("a suggested rename makes the keys match, as the command's does", async () => {
  const path = join(folder, "renamed.safetensors");
  run("convert", fixture(GPT), path, "--states", "model", "--rename", "^model\\.model\\.=>net.", "--lossy");
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped(GPT)]);
    await page.waitForSelector("#work .row");
    await compareWith(page, [made("renamed.safetensors")]);
    await page.waitForSelector("#save-report:not([disabled])");
    const before = await count(page, "added");
    assert.ok(before > 0);
    // The suggestion is shown at once, because most keys have no counterpart.
    await page.locator(".parted").getByRole("button", { name: "Use it" }).first().waitFor();
    await page.keyboard.press("m");
    await page.waitForSelector(".parted", { state: "detached" });
    const rule = await page.textContent(".matching p code");
    await page.locator(".matching").getByRole("button", { name: "Use it" }).first().click();
    await page.waitForFunction(() => /renamed/.test(document.querySelector("#verdict").textContent));
    assert.equal(await report(page), run("diff", fixture(GPT), path, "--json", "--rename", rule));
    assert.ok((await count(page, "added")) < before);
    assert.ok((await count(page, "renamed")) > 0);
    assert.ok((await page.textContent(".matching .cmd")).includes(`--rename '${rule}'`));
    // An invalid rule is reported, and can be corrected in place.
    await page.fill(".matching textarea", "nonsense");
    await page.press(".matching textarea", "Tab");
    await page.waitForSelector('#compare [role="alert"]:has-text("nonsense")');
    assert.ok(await page.isDisabled("#save-report"));
    await page.fill(".matching textarea", "");
    await page.press(".matching textarea", "Tab");
    await page.waitForSelector("#save-report:not([disabled])");
    assert.equal(await count(page, "added"), before);
  });
});

for (const [first, second] of [
  [GPT, "cerebras/v2.10.0/gpt_small.pt"],
  ["cerebras/compat/synthetic_1.7.mdl", "cerebras/compat/synthetic_1.7_fixed.mdl"],
  ["cerebras/v2.10.0/seed.mdl", GPT],
]) {
  test(`the page and \`check\` agree on whether ${first} would load into ${second}`, async () => {
    await withPage(browser, async (page) => {
      await drop(page, "body", [dropped(first)]);
      await page.waitForSelector("#work .row");
      await compareWith(page, [dropped(second)]);
      await page.waitForSelector("#save-report:not([disabled])");
      assert.equal(await page.locator(".parted").count(), 0, "no rename is suggested");
      for (const options of [[], ["--no-strict"]]) {
        const json = JSON.parse(run("check", fixture(first), "--against", fixture(second), "--json", ...options));
        if (options.length) {
          await page.click("#loads .chip[aria-pressed]");
          await page.waitForSelector('#loads .chip[aria-pressed="false"]');
        }
        const answer = json.loads ? "Yes." : "No.";
        await page.waitForFunction((answer) => document.querySelector("#loads")?.textContent.includes(answer), answer);
        const verdict = await page.textContent("#loads");
        assert.ok(verdict.includes(`${json.matching.toLocaleString("en")} key`), verdict);
        for (const [list, word] of [[json.missing, "missing"], [json.unexpected, "unexpected"], [json.shapes, "shape mismatch"]]) {
          assert.equal(verdict.includes(`${list.length.toLocaleString("en")} ${word}`), list.length > 0, verdict);
        }
      }
      // Missing and unexpected keys count again; then with each release.
      await page.click("#loads .chip[aria-pressed]");
      const menu = page.getByLabel("release filter");
      const releases = await menu.locator("option").allTextContents();
      assert.equal(releases[0], "any");
      for (const release of ["2.10", "2.9", "2.4"]) {
        assert.ok(releases.includes(release));
        const json = JSON.parse(run("check", fixture(first), "--against", fixture(second), "--json", "--release", release));
        const output = run("check", fixture(first), "--against", fixture(second), "--release", release);
        const expected = [...output.matchAll(/^(?:release|format) +(.*)$/gm)].map(([, text]) => pageWords(text).toLowerCase());
        assert.ok(expected.length > 0, output);
        await menu.selectOption(release);
        await page.waitForFunction(
          ([texts, answer]) => {
            const verdict = document.querySelector("#loads").textContent.toLowerCase();
            return verdict.includes(answer) && texts.every((text) => verdict.includes(text));
          },
          [expected, json.loads ? " yes. " : " no. "],
        );
      }
      await menu.selectOption("");
      // Without a release, the only line left states that the first checkpoint is incomplete, if it is.
      const left = [...run("check", fixture(first), "--against", fixture(second)).matchAll(/^incomplete +.*$/gm)].length;
      await page.waitForFunction((left) => document.querySelectorAll("#loads .release").length === left, left);
    });
  });
}

test("a manifest or a list of keys is checked as the command checks it", async () => {
  const manifest = run("manifest", fixture("cerebras/v2.10.0/seed.mdl"), "--json");
  const lines = run("manifest", fixture(GPT));
  for (const [name, text] of [["seed.json", manifest], ["gpt.txt", lines], ["keys.txt", "model.lm_head.weight float32 [97, 32]\nnew.weight\n"]]) {
    const path = join(folder, name);
    writeFileSync(path, text);
    const json = JSON.parse(run("check", fixture(GPT), "--against", path, "--json"));
    await withPage(browser, async (page) => {
      await drop(page, "body", [dropped(GPT)]);
      await page.waitForSelector("#work .row");
      await compareWith(page, [{ name, bytes: Buffer.from(text) }]);
      await page.waitForSelector("#loads");
      const verdict = await page.textContent("#loads");
      assert.ok(verdict.includes(json.loads ? "Yes." : "No."), verdict);
      assert.ok(verdict.includes(`${json.matching.toLocaleString("en")} key`), verdict);
      for (const [list, word] of [[json.missing, "missing"], [json.unexpected, "unexpected"]]) {
        assert.equal(verdict.includes(`${list.length.toLocaleString("en")} ${word}`), list.length > 0, verdict);
      }
      assert.match(await page.textContent("#compare"), /B is not a checkpoint but a list of expected keys/);
    });
  }
});

test("comparing values shows progress, stops on request and restarts", async () => {
  // Sparse files of 1 GiB.
  const size = 1 << 30;
  const head = Buffer.from(JSON.stringify({ w: { dtype: "F32", shape: [size / 4], data_offsets: [0, size] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  const paths = ["first", "second"].map((name) => {
    const path = join(folder, `${name}.safetensors`);
    writeFileSync(path, Buffer.concat([length, head]));
    truncateSync(path, 8 + head.length + size);
    return path;
  });
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", paths[0]);
    await page.waitForSelector("#work .row");
    const chooser = await choosing(page, () => page.click("#compare-with"));
    await chooser.setFiles(paths[1]);
    // The structure is shown before the values are read.
    await page.waitForSelector('#compare [data-mark="not read"]');
    await page.waitForSelector("#verdict .prog");
    await page.keyboard.press("Escape");
    await page.waitForSelector('#verdict[data-state="stopped"]');
    assert.ok(await page.isDisabled("#save-report"));
    assert.equal(await count(page, "not read"), 1);
    await page.locator("#verdict").getByRole("button", { name: "Read the values" }).first().click();
    await page.waitForSelector('#verdict[data-state="done"]', { timeout: 60_000 });
    const { matches, elements } = JSON.parse(await report(page));
    assert.deepEqual([matches, elements], [true, size / 4]);
  });
});

test("a comparison opens by key, swaps sides and closes; a file that is not a checkpoint is reported", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped(GPT)]);
    await page.waitForSelector("#work .row");
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(fixture("cerebras/v2.10.0/seed.mdl"));
    const names = () => page.$$eval("#compare .ab .name", (names) => names.map((name) => name.textContent));
    await page.waitForSelector("#save-report:not([disabled])");
    assert.deepEqual(await names(), ["gpt_small.mdl", "seed.mdl"]);
    const added = await count(page, "added");
    const removed = await count(page, "removed");
    await page.keyboard.press("x");
    await page.waitForSelector('#compare [data-side="A"][title="seed.mdl"]');
    await page.waitForSelector("#save-report:not([disabled])");
    assert.deepEqual(await names(), ["seed.mdl", "gpt_small.mdl"]);
    assert.deepEqual([await count(page, "added"), await count(page, "removed")], [removed, added]);
    assert.equal(await report(page), run("diff", fixture("cerebras/v2.10.0/seed.mdl"), fixture(GPT), "--json"));
    // A filter without matches is cleared with Escape.
    await page.keyboard.press("/");
    await page.keyboard.type("no such key");
    await page.waitForSelector('#compare .empty');
    await page.keyboard.press("Escape");
    await page.waitForSelector("#compare .row");
    await compareWith(page, [{ name: "notes.txt", bytes: "nothing at all\n" }]);
    await page.waitForSelector('#compare [role="alert"]');
    await page.keyboard.press("Escape");
    await page.waitForSelector("#work .row");
    // A file dropped on the left half replaces the open checkpoint.
    await drop(page, "body", [dropped(GPT)]);
    await page.waitForSelector('#work[data-name="gpt_small.mdl"]');
  });
});

test("tensors of other sizes are compared in their common part", async () => {
  const before = floats({ "embed.weight": [[1, 2], [3, 4], [5, 6]] });
  const after = floats({ "embed.weight": [[1, 2], [3, 9], [5, 6], [7, 8]] });
  await withPage(browser, async (page) => {
    await drop(page, "#start", [{ name: "before.safetensors", bytes: before }]);
    await page.waitForSelector("#work .row");
    await compareWith(page, [{ name: "after.safetensors", bytes: after }]);
    await page.waitForSelector("#save-report:not([disabled])");
    await page.locator("#compare .row").first().click();
    const text = await page.textContent("#compare .insp");
    assert.match(text, /the common part \[3, 2\]/);
    assert.match(text, /1 of 6/);
    assert.match(text, /\[1, 1\]/);
  });
});

test("long keys wrap at 1024 pixels before shapes are left out, and a phone saves every report", async () => {
  const llama = (value) => floats(Object.fromEntries(Array.from({ length: 16 }, (_, layer) => ["input_layernorm", "post_attention_layernorm"].map((name) => [`model.layers.${layer}.${name}.weight`, [[layer, value]]])).flat()));
  const names = ["one.safetensors", "two.safetensors"].map((name) => join(folder, name));
  names.forEach((path, at) => writeFileSync(path, llama(at)));
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", names[0]);
    await page.waitForSelector("#work .row");
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(names[1]);
    await page.waitForSelector("#save-report:not([disabled])");
    assert.ok(await page.locator("#compare .head .cs").isVisible(), "shape");
    const cut = await page.$$eval("#compare .row .ck", (keys) => keys.filter((key) => key.scrollWidth > key.clientWidth + 1).length);
    assert.equal(cut, 0);
    for (const width of [390, 320]) {
      await page.setViewportSize({ width, height: 800 });
      for (const name of ["HTML", "Markdown", "JSON"]) {
        const box = await page.getByRole("button", { name, exact: true }).boundingBox();
        assert.ok(box && box.x >= 0 && box.x + box.width <= width, `${name} at ${width}`);
      }
    }
  }, { viewport: { width: 1024, height: 768 } });
});
