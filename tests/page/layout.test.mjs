// Layout: nothing moves while a file is dragged or rows are picked, nothing is cut off at any width, and keys get the width
// that the other columns don't need.

import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, choosing, drop, dropped, fixture, launch, withPage, withSlowPage } from "./harness.mjs";
import { floats, safetensors } from "./make.mjs";
import { rest, screens, shownFiles } from "./screens.mjs";
import * as checks from "./accessibility.mjs";

let browser;
let folder;
let files;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-layout-"));
  files = shownFiles(folder);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Dispatches the events of a file that is dragged over the page, or away from it. */
async function drag(page, event) {
  await page.evaluate((event) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["x"], "x.pt"));
    const target = document.querySelector("main") ?? document.body;
    const names = event === "over" ? ["dragenter", "dragover"] : ["dragleave"];
    for (const name of names) target.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }, event);
}

const SCREEN = ["header", "main", "footer"];
const CONTENT = "main > *:nth-child(2)";

/** Fails if one of these parts moves while a file is dragged over the page. */
async function stays(page, state, parts = [...SCREEN, CONTENT]) {
  const boxes = (page) =>
    page.evaluate((parts) =>
      parts.map((name) => {
        const box = document.querySelector(name)?.getBoundingClientRect();
        return [name, box && [box.left, box.top, box.width, box.height].map(Math.round)];
      }), parts);
  const before = await boxes(page);
  assert.ok(before[1][1], `${state}: there is a main`);
  await drag(page, "over");
  await page.waitForSelector("#start.over, .dropover");
  assert.deepEqual(await boxes(page), before, `${state}: nothing moves while a file is dragged`);
  await drag(page, "leave");
  await page.waitForSelector("#start.over, .dropover", { state: "detached" });
  assert.deepEqual(await boxes(page), before, `${state}: nothing has moved afterwards`);
}

for (const viewport of [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
]) {
  test(`at ${viewport.width} header, main and footer do not move while a file is dragged over the page (core)`, async () => {
    await withPage(
      browser,
      async (page) => {
        await stays(page, "empty");
        await drop(page, "body", [{ name: "x.pt", bytes: "nothing" }]);
        await page.waitForSelector("#error");
        await stays(page, "failing");
        await page.keyboard.press("Escape");
        await page.setInputFiles("#choose-files", files.model);
        await page.waitForSelector("#work .row");
        await stays(page, "workspace");
      },
      { viewport },
    );
    await withSlowPage(
      browser,
      { reads: 400 },
      async (page) => {
        await page.setInputFiles("#choose-files", { name: "many.safetensors", mimeType: "", buffer: safetensors(Array.from({ length: 40_000 }, (_, at) => `layers.${at}.weight`)) });
        await page.waitForSelector("#loading");
        // The content shows the progress, which changes.
        await stays(page, "loading", SCREEN);
      },
      { viewport },
    );
  });
}

for (const width of [360, 390, 720, 768, 820, 1024, 1440, 1920, 2560]) {
  test(`at ${width} pixels the shortcuts are shown in full${width === 768 ? " (core)" : ""}`, async () => {
    await withPage(
      browser,
      async (page) => {
        await page.keyboard.press("?");
        await page.waitForSelector(".dlg .keys");
        await rest(page);
        const [content, room] = await page.$eval(".dlg:has(.keys)", (dialog) => [dialog.scrollWidth, dialog.clientWidth]);
        assert.ok(content <= room, `${content} of ${room} pixels`);
      },
      { viewport: { width, height: 1000 } },
    );
  });

  test(`at ${width} pixels nothing is cut off${[390, 768, 1440].includes(width) ? " (core)" : ""}`, async () => {
    await withPage(
      browser,
      async (page) => {
        page.setDefaultTimeout(20_000);
        const found = [];
        await screens(page, files, async (screen) => {
          await rest(page);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          if (wide > width) found.push(`${screen}: the page is ${wide} wide`);
          const isCut = (names) =>
            names.filter((name) => name.scrollWidth > name.clientWidth + 1 || (name.matches(".name") && name.scrollHeight > name.clientHeight + 1)).map((name) => name.textContent);
          for (const name of await page.$$eval(".ab .name, .status > button, .sides :is(th, td)", isCut)) found.push(`${screen}: ${name} is cut`);
          for (const check of [checks.outside, checks.unreachable, checks.brokenWords]) found.push(...(await page.evaluate(check)).map((problem) => `${screen}: ${problem}`));
        });
        assert.deepEqual(found, []);
      },
      { viewport: { width, height: width < 700 ? 844 : 1000 } },
    );
  });
}

test("at 320 by 256 pixels, as at 400 %, the status bar wraps, and all of a sheet can be reached", async () => {
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", files.model);
      await page.waitForSelector("#work");
      await rest(page);
      const cut = await page.$$eval(".status > button", (buttons) => buttons.filter((button) => button.scrollWidth > button.clientWidth + 1).map((button) => button.textContent));
      assert.deepEqual(cut, []);
      for (const key of ["c", "s", "v"]) {
        await page.keyboard.press(key);
        await page.waitForSelector(".sheet > footer");
        await rest(page);
        const [visible, content] = await page.$eval(".sheet", (sheet) => {
          const content = sheet.querySelector(".sheetbody, .two");
          content.scrollIntoView();
          const [{ top, bottom }, footer] = [content, sheet.querySelector("footer")].map((part) => part.getBoundingClientRect());
          return [Math.min(bottom, footer.top, innerHeight) - Math.max(top, 0), content.scrollHeight];
        });
        assert.ok(visible >= Math.min(content, 128), `the sheet of ${key} shows ${visible} of ${content} pixels`);
        await page.keyboard.press("Escape");
        await page.waitForSelector(".sheet", { state: "detached" });
      }
    },
    { viewport: { width: 320, height: 256 } },
  );
});

/** Returns the keys of the table that are cut. */
const cutKeys = (page, rows) =>
  page.$$eval(`${rows} .ck .key > *`, (parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.parentElement.textContent));

test("keys are not truncated while other columns are empty; empty columns are hidden (core)", async () => {
  const names = ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "post_attention_layernorm.weight", "mlp.gate_proj.weight"];
  const tensors = Object.fromEntries([0, 1, 2].flatMap((layer) => names.map((name) => [`model.layers.${layer}.${name}`, [[1, 2]]])));
  const path = join(folder, "keys.safetensors");
  writeFileSync(path, floats(tensors));
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row");
      await page.keyboard.press("l");
      await page.waitForSelector("#work .row:not(.grp):nth-child(12)");
      assert.deepEqual(await cutKeys(page, "#work"), []);
      assert.equal(await page.locator("#work .head .cv").isVisible(), false, "no value, no column");
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

test("type grows with the window, and no line is lower than its letters", async () => {
  const path = join(folder, "type.safetensors");
  writeFileSync(path, floats(layers(4)));
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", path);
    await page.waitForSelector("#work .row");
    for (const [width, size] of [[1440, 12], [1920, 13], [2560, 14], [1440, 12]]) {
      await page.setViewportSize({ width, height: 1000 });
      const style = (selector) => page.$eval(selector, (part) => [getComputedStyle(part).fontSize, getComputedStyle(part).lineHeight].map(parseFloat));
      await becomes(async () => (await style("#work .row .key"))[0], size);
      for (const part of ["#work .row .key", "#work .tree .t"]) {
        const [font, line] = await style(part);
        assert.ok(line >= font * 1.3, `${part} at ${width}: ${font} in ${line} pixels`);
      }
      // The texts of all cells fit.
      assert.deepEqual(await cutKeys(page, "#work"), []);
      assert.deepEqual(await page.$$eval("#work .row > :is(.cs, .cp, .cb)", (cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)), []);
    }
  });
});

test("in a wide window, numbers stay close to their keys", async () => {
  const path = join(folder, "wide.safetensors");
  writeFileSync(path, floats(layers(12)));
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row");
      const gap = () =>
        page.$$eval("#work .row:not(.grp)", (rows) => {
          const ends = rows.map((row) => Math.max(...[...row.querySelectorAll(".ck .key > *")].map((part) => part.getBoundingClientRect().right)));
          return rows[0].querySelector(".cs").getBoundingClientRect().left - Math.max(...ends);
        });
      const folded = await gap();
      assert.ok(folded >= 0 && folded < 400, `${folded} pixels`);
      assert.deepEqual(await cutKeys(page, "#work"), []);
      await page.keyboard.press("l");
      await page.waitForSelector("#work .row:not(.grp):nth-child(24)");
      const flat = await gap();
      assert.ok(flat >= 0 && flat < 160, `${flat} pixels`);
      assert.deepEqual(await cutKeys(page, "#work"), []);
    },
    { viewport: { width: 2560, height: 1440 } },
  );
});

/** Returns tensors with the keys of a Llama's layers, below the `model` of a trainer. */
function layers(count, prefix = "model.model.") {
  const names = ["self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"];
  const numbers = Array.from({ length: count }, (_, at) => at);
  return Object.fromEntries(numbers.flatMap((layer) => names.map((name) => [`${prefix}layers.${layer}.${name}.weight`, [[layer, 1], [2, -3]]])));
}

test("columns of statistics leave enough width for keys, in the table and in the tree (core)", async () => {
  const path = join(folder, "layers.safetensors");
  writeFileSync(path, floats(layers(12, "model.")));
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row");
      await page.click("#scan");
      await page.waitForSelector("#scanned");
      await page.waitForSelector("#work .head .wnn");
      const tree = await page.$$eval(".tree .t", (names) => names.filter((name) => name.scrollWidth > name.clientWidth + 1).map((name) => name.textContent));
      assert.deepEqual(tree, []);
      assert.deepEqual(await cutKeys(page, "#work"), [], "folded");
      await page.keyboard.press("l");
      await page.waitForSelector("#work .row:not(.grp):nth-child(20)");
      await page.waitForSelector("#work .head .wly", { state: "detached" });
      assert.deepEqual(await cutKeys(page, "#work"), [], "all keys");
      // Selected columns are always shown.
      const heads = () => page.$$eval("#work .head .c", (heads) => heads.map((head) => head.textContent.trim()));
      await page.click("#columns summary");
      for (const name of ["min", "max", "zeros", "|x| max"]) await page.locator("#columns").getByRole("checkbox", { name, exact: true }).check();
      for (const name of ["min", "max", "zeros", "|x| max"]) assert.ok((await heads()).includes(name), name);
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

/** Returns the classes of the visible columns of the table. */
const shownColumns = (page) => page.$$eval("#work .head > .c", (heads) => heads.filter((head) => head.checkVisibility()).map((head) => head.className.split(" ")[1]));

/** Fails unless keys have the computed width, and the columns fill the table. */
async function keysFillTable(page) {
  const { computed, keys, ends } = await page.$eval("#work .keytable", (table) => {
    const rows = [...table.querySelectorAll(".head, .row:not(.grp)")];
    const box = (element) => element.getBoundingClientRect();
    const { left } = box(table);
    // The head also spans the gutter of the scroll bar, so the edge is that of the rows.
    const right = left + table.querySelector(".scroller").clientWidth;
    return {
      computed: parseFloat(getComputedStyle(table).getPropertyValue("--columns").match(/[\d.]+(?=px)/)[0]),
      keys: rows.map((row) => box(row.querySelector(".ck")).width),
      ends: rows.map((row) => right - Math.max(...[...row.children].filter((cell) => cell.textContent).map((cell) => box(cell).right))),
    };
  });
  assert.ok(keys.length > 1);
  for (const key of keys) assert.equal(key, computed);
  for (const end of ends) assert.equal(end, 10);
}

for (const width of [721, 768, 820, 1024, 1181, 1200, 1300]) {
  test(`at ${width} pixels keys, shapes and statistics are shown in full before and after a scan${width === 768 ? " (core)" : ""}`, async () => {
    const path = join(folder, "layers.safetensors");
    writeFileSync(path, floats(layers(12, "model.")));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        await page.keyboard.press("l");
        const last = page.locator('#work .row[data-key="model.layers.2.mlp.down_proj.weight"]');
        await last.waitFor();
        await becomes(() => cutKeys(page, "#work"), []);
        const plain = await shownColumns(page);
        for (const name of ["ck", "cs", "cb"]) assert.ok(plain.includes(name), `${name} in ${plain}`);
        await keysFillTable(page);
        await page.click("#scan");
        await page.waitForSelector("#scanned", { state: "attached" });
        await page.waitForSelector("#work .head .wsd");
        await becomes(() => cutKeys(page, "#work"), []);
        const scanned = await shownColumns(page);
        for (const name of ["ck", "cs", "wsd"]) assert.ok(scanned.includes(name), `${name} in ${scanned}`);
        await keysFillTable(page);
        // A wrapped key stays inside its row, and rows are adjacent.
        const rows = await page.$$eval("#work .scroller .flat:not(.stuck) .row", (rows) => rows.map((row) => [row, row.querySelector(".key")].map((part) => part.getBoundingClientRect()).map(({ top, bottom }) => [top, bottom])));
        for (const [at, [[top, bottom], [keyTop, keyBottom]]] of rows.entries()) {
          assert.ok(keyTop >= top - 1 && keyBottom <= bottom + 1, `${keyTop}–${keyBottom} in ${top}–${bottom}`);
          if (at > 0) assert.ok(Math.abs(rows[at - 1][0][1] - top) < 1, "rows are adjacent");
        }
        // No cell overlaps the key.
        const overlaps = await last.evaluate((row) => {
          const [key, ...others] = [...row.children].filter((cell) => cell.getBoundingClientRect().width > 0);
          return others.filter((cell) => cell.getBoundingClientRect().left < key.getBoundingClientRect().right - 1).map((cell) => cell.className);
        });
        assert.deepEqual(overlaps, []);
      },
      { viewport: { width, height: 900 } },
    );
  });
}

test("a wrapped key is copied as one line, and the visible rows stay when keys begin to wrap", async () => {
  const path = join(folder, "layers.safetensors");
  writeFileSync(path, floats(layers(40, "model.language_model.text_decoder.")));
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row");
      await page.keyboard.press("l");
      await page.waitForSelector("#work .row:not(.grp):nth-child(20)");
      assert.equal(await page.locator("#work .keylines").count(), 0);
      await page.$eval("#work .scroller", (scroller) => scroller.scrollTo(0, 1200));
      const top = () =>
        page.$$eval("#work .row[data-key]", (rows) => {
          const { top } = document.querySelector("#work .scroller").getBoundingClientRect();
          // Empty until the rows at the new position are drawn.
          return rows.find((row) => row.getBoundingClientRect().bottom > top + 1)?.dataset.key ?? "";
        });
      await becomes(async () => (await top()).startsWith("model.language_model.text_decoder.layers.8."), true);
      const before = await top();
      await page.setViewportSize({ width: 768, height: 900 });
      await page.waitForSelector("#work .keylines");
      await becomes(top, before);
      const [shown, copied] = await page.$eval("#work .row[data-key]:has(.keylines) .key", (key) => {
        getSelection().selectAllChildren(key);
        return [key.textContent, getSelection().toString()];
      });
      assert.equal(copied, shown);
    },
    { viewport: { width: 2200, height: 900 } },
  );
});

/** Returns names of many lengths and scripts, some of which just fit into a line of the tree. */
function manyNames() {
  const letters = ["w", "i_", "W.", "long_word_", "a-b", "\u{5c42}", "\u00e9\u00df", "\u0416_", "0_", "\u{1f600}x", "of words "];
  return letters.flatMap((letter) => [8, 15, 20, 22, 23, 24, 25, 26, 28, 32, 47, 70].map((length) => `${letter.repeat(length).slice(0, length)}`.toWellFormed()));
}

for (const width of [390, 768, 1440]) {
  test(`at ${width} pixels lines of the tree are as high as their names${width === 1440 ? " (core)" : ""}`, async () => {
    const names = ["post_attention_layernorm", ...manyNames()];
    const path = join(folder, "names.safetensors");
    writeFileSync(path, floats({ ...Object.fromEntries(names.flatMap((name) => [[`x.${name.replaceAll(".", "_")}.weight`, [1]], [`x.layers.0.${name.replaceAll(".", "_")}.weight`, [1]]])), ...layers(12, "model.") }));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        if (width <= 720) await page.getByRole("tab", { name: "Tree" }).click();
        else if (width <= 1180) await page.getByRole("button", { name: "Tree" }).click();
        await page.waitForSelector(".tree li");
        const wrong = () =>
          page.$$eval(".tree li", (lines, small) =>
            lines.flatMap((line) => {
              const [name, number, box] = [line.querySelector(".t"), line.querySelector(".num"), line].map((part) => part.getBoundingClientRect());
              const range = document.createRange();
              range.selectNodeContents(line.querySelector(".t"));
              const tops = new Set([...range.getClientRects()].filter(({ width }) => width > 0).map(({ top }) => Math.round(top / 8)));
              const expected = small ? 44 + 18 * Math.max(tops.size - 2, 0) : 8 + 16 * tops.size;
              const widest = Math.max(...[...range.getClientRects()].map(({ right }) => right));
              const fits = Math.abs(box.height - expected) < 1 && widest <= number.left + 1 && name.top >= box.top - 1 && name.bottom <= box.bottom + 1;
              return fits ? [] : [`${line.textContent}: ${tops.size} lines in ${box.height}, to ${widest} of ${number.left}`];
            }),
            width <= 720,
          );
        await becomes(wrong, []);
        assert.ok((await page.locator(".tree li").count()) > 40);
        // Names have no more lines than they need.
        const spare = await page.$$eval(".tree li", (lines) =>
          lines.flatMap((line) => {
            const [name, number] = [line.querySelector(".t"), line.querySelector(".num")].map((part) => part.getBoundingClientRect());
            const text = line.querySelector(".t").textContent;
            return /^[a-z_]+$/.test(text) && name.height > 20 && text.length * 7.3 < number.left - name.left - 40 ? [text] : [];
          }),
        );
        assert.deepEqual(spare, []);
      },
      { viewport: { width, height: 2400 } },
    );
  });
}

for (const width of [390, 820, 1024, 1200, 1440]) {
  test(`at ${width} pixels a tensor's name of 44 letters is shown in full in the tree and the inspector`, async () => {
    const name = "a_rather_long_name_of_a_tensor_in_the_model_";
    assert.equal(name.length, 44);
    const path = join(folder, "long.safetensors");
    writeFileSync(path, floats({ [name]: [[1, 2]], [`model.block.${name}.weight`]: [[1, 2]], "model.head.weight": [[3, 4]] }));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        const isCut = (parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1).map((part) => part.textContent);
        if (width <= 720) await page.getByRole("tab", { name: "Tree" }).click();
        else if (width <= 1180) await page.getByRole("button", { name: "Tree" }).click();
        await page.waitForSelector(".tree li");
        assert.deepEqual(await page.$$eval(".tree .n, .tree .t", isCut), []);
        // No name overlaps another line or the number.
        const over = () =>
          page.$$eval(".tree li", (lines) =>
            lines.filter((line) => {
              const [box, name, number] = [line, line.querySelector(".t"), line.querySelector(".num")].map((part) => part.getBoundingClientRect());
              return name.bottom > box.bottom + 1 || name.top < box.top - 1 || name.right > number.left + 1;
            }).map((line) => line.textContent),
          );
        await becomes(over, []);
        assert.equal(await page.locator(".tree li").evaluateAll((lines, name) => lines.filter((line) => line.textContent.includes(name)).length, name), 2);
        if (width <= 720) await page.getByRole("tab", { name: "Keys" }).click();
        else if (width <= 1180) await page.getByRole("button", { name: "Tree" }).click();
        await page.click(`#work .row[data-key="${name}"]`);
        await page.waitForSelector(`.insp[data-key="${name}"]`);
        assert.deepEqual(await page.$$eval(".insp .wrapkey", isCut), []);
        await page.keyboard.press("e");
        await page.waitForSelector("#matrix .wrapkey");
        assert.deepEqual(await page.$$eval("#matrix .matrix-key, #matrix .wrapkey", isCut), []);
      },
      { viewport: { width, height: 900 } },
    );
  });
}

for (const width of [390, 768, 1024, 1440]) {
  test(`at ${width} pixels keys are shown in full in a comparison${width === 768 ? " (core)" : ""}`, async () => {
    const [one, two] = ["one", "two"].map((name) => join(folder, `${name}.safetensors`));
    const attention = (count, by) => Object.fromEntries(Object.entries(layers(count)).map(([key, [[a, b], rest]]) => [key, [[a + by, b], rest]]));
    writeFileSync(one, floats({ ...attention(4, 0), "model.a_key_that_only_this_side_has.weight": [1] }));
    writeFileSync(two, floats({ ...attention(4, 1), "model.another_key_on_the_other_side_only.weight": [1] }));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", one);
        await page.waitForSelector("#work .row");
        const chooser = await choosing(page, () => page.keyboard.press("d"));
        await chooser.setFiles(two);
        await page.waitForSelector("#save-report:not([disabled])");
        const isCut = (parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1).map((part) => part.textContent);
        const cells = "#compare .scroller .ck, #compare .scroller .ck *";
        await page.waitForSelector("#compare .scroller .row");
        await becomes(() => page.$$eval(cells, isCut), []);
        await page.keyboard.press("l");
        await page.waitForSelector('#compare .row[data-key="model.model.layers.1.self_attn.q_proj.weight"]');
        await becomes(() => page.$$eval(cells, isCut), []);
        const rows = await page.$$eval("#compare .scroller .row", (rows) => rows.map((row) => [row, row.querySelector(".ck")].map((part) => part.getBoundingClientRect()).map(({ top, bottom }) => [top, bottom])));
        for (const [[top, bottom], [keyTop, keyBottom]] of rows) assert.ok(keyTop >= top - 1 && keyBottom <= bottom + 1, `${keyTop}–${keyBottom} in ${top}–${bottom}`);
        if (width <= 720) await page.getByRole("tab", { name: "Details" }).click();
        await page.waitForSelector("#loads dd");
        assert.deepEqual(await page.$$eval("#loads dd, #loads dd *", isCut), []);
        const lines = await page.$$eval("#loads .wrapkey", (keys) => keys.map((key) => key.textContent));
        assert.ok(lines.includes("model.another_key_on_the_other_side_only.weight"), lines.join());
      },
      { viewport: { width, height: 900 } },
    );
  });
}

for (const width of [390, 768, 1024, 1440]) {
  test(`at ${width} pixels a file name of 44 letters is shown in full, and numbers are shown once`, async () => {
    const name = "a_rather_long_name_of_checkpoint.safetensors";
    assert.equal(name.length, 44);
    const path = join(folder, name);
    writeFileSync(path, floats(layers(2)));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        const cut = () => page.$eval(".top .name", (name) => [name.scrollWidth > name.clientWidth + 1, name.scrollHeight > name.clientHeight + 1]);
        const facts = page.locator("#work .top .facts");
        assert.deepEqual(await cut(), [false, false]);
        // The inspector shows parameters and bytes of the checkpoint. On small screens it is another tab, so the header does.
        assert.equal(await facts.isVisible(), width < 720);
        assert.equal(await page.locator("#checkpoint-facts").isVisible(), width > 720);
        await page.locator("#work .row:not(.grp):not(.fold)").first().click();
        await page.waitForSelector(".insp .facts", { state: "attached" });
        assert.deepEqual(await cut(), [false, false]);
        if (width !== 768) assert.ok(await facts.isVisible());
      },
      { viewport: { width, height: 900 } },
    );
  });
}

for (const width of [390, 768, 1024, 1440]) {
  test(`at ${width} pixels the reason why a step is damaged is shown in full`, async () => {
    const run = mkdtempSync(join(folder, "damaged-"));
    for (const step of [100, 200, 300]) copyFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"), join(run, `checkpoint_${step}.mdl`));
    for (const step of [300, 200]) truncateSync(join(run, `checkpoint_${step}.mdl`), step * 400);
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-folder", run);
        await page.waitForSelector("#run .row .why", { state: "attached" });
        await page.waitForSelector("#show-loaded");
        const tab = page.getByRole("tab", { name: "Files" });
        if (await tab.isVisible()) await tab.click();
        const rows = await page.$$eval("#run .row", (rows) =>
          rows.map((row) => {
            const [box, why] = [row, row.querySelector(".why")].map((part) => part?.getBoundingClientRect());
            return { name: row.querySelector(".ck").title, top: box.top, bottom: box.bottom, text: row.querySelector(".why")?.textContent ?? "", end: why?.bottom ?? 0, cut: row.querySelector(".why")?.scrollWidth > why?.width + 1 };
          }),
        );
        assert.deepEqual(rows.map((row) => row.text !== ""), [true, true, false]);
        for (const [at, row] of rows.entries()) {
          assert.ok(!row.cut && row.end <= row.bottom, `${row.name}: ${JSON.stringify(row)}`);
          if (at > 0) assert.ok(Math.abs(row.top - rows[at - 1].bottom) < 1, "rows are adjacent");
        }
      },
      { viewport: { width, height: 900 } },
    );
  });
}

test("panes are resized by their edges, and keep their widths", async () => {
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", files.model);
      await page.waitForSelector("#work .row");
      const wide = async (pane) => (await page.locator(pane).boundingBox()).width;
      const before = await wide(".insp");
      const edge = await page.locator(".splitter.of-insp").boundingBox();
      await page.mouse.move(edge.x + 4, edge.y + 200);
      await page.mouse.down();
      await page.mouse.move(edge.x - 96, edge.y + 200, { steps: 4 });
      await page.mouse.up();
      assert.equal(await wide(".insp"), before + 100);
      const tree = await wide(".tree");
      await page.locator(".splitter.of-tree").press("ArrowLeft");
      assert.equal(await wide(".tree"), tree - 16);
      await page.reload();
      await page.waitForSelector("#start");
      await page.setInputFiles("#choose-files", files.model);
      await page.waitForSelector("#work .row");
      assert.deepEqual([await wide(".insp"), await wide(".tree")], [before + 100, tree - 16]);
      await page.locator(".splitter.of-insp").dblclick();
      assert.equal(await wide(".insp"), before);
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

test("a click anywhere in the head of a column sorts by it (core)", async () => {
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", files.model);
      await page.waitForSelector("#work .row");
      const cell = page.locator("#work .head .cb");
      const box = await cell.boundingBox();
      // Far from the label, which is right-aligned.
      await page.mouse.click(box.x + 14, box.y + box.height - 4);
      await page.waitForSelector('#work .head .cb[aria-sort="descending"]');
      assert.equal(await cell.locator("button").evaluate((button) => getComputedStyle(button).cursor), "pointer");
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

test("rows do not move when some are picked, or when values are NaN (core)", async () => {
  const path = join(folder, "nan.safetensors");
  writeFileSync(path, floats({ a: [1, 2], b: [NaN, 2], c: [3, 4], d: [5, 6] }));
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row");
      const tops = () => page.$$eval("#work .scroller .row", (rows) => rows.map((row) => Math.round(row.getBoundingClientRect().top)));
      const before = await tops();
      await page.locator("#work .row").nth(1).click({ modifiers: ["Control"] });
      await page.waitForSelector("#picked");
      assert.deepEqual(await tops(), before);
      await page.click("#scan");
      await page.waitForSelector("#work .notice.warn");
      assert.deepEqual(await tops(), before);
      assert.ok((await page.locator("#work .notice.warn").boundingBox()).y > before.at(-1));
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

for (const width of [390, 1024, 1440]) {
  test(`at ${width} pixels the call of a hostile pickle is named in full in its rows`, () =>
    withPage(
      browser,
      async (page) => {
        await drop(page, "body", [dropped("attacks/builtins_eval.pt")]);
        await page.waitForSelector("#work .row");
        // The call begins with its name: "builtins.eval(".
        const shown = (cells) =>
          cells.map((cell) => {
            const range = document.createRange();
            range.setStart(cell.firstChild, 0);
            range.setEnd(cell.firstChild, "builtins.eval(".length);
            return range.toString() === "builtins.eval(" && range.getBoundingClientRect().right <= cell.getBoundingClientRect().right;
          });
        await becomes(() => page.$$eval("#work .row .cv .v", shown), [true]);
        if (width === 1440) {
          const [content, room] = await page.$eval("#work .row .cv .v", (value) => [value.scrollWidth, value.clientWidth]);
          assert.ok(content <= room, `${content} of ${room} pixels`);
        }
        if (width > 720) await keysFillTable(page);
        if (width <= 720) await page.getByRole("tab", { name: "Tree" }).click();
        else if (width <= 1180) await page.getByRole("button", { name: "Tree" }).click();
        await becomes(() => page.$$eval(".tree .value", shown), [true]);
      },
      { viewport: { width, height: 900 } },
    ));
}

for (const width of [1024, 1200, 1280, 1440]) {
  test(`at ${width} pixels sorting hides no column${width === 1280 ? " (core)" : ""}`, async () => {
    const path = join(folder, "layers.safetensors");
    writeFileSync(path, floats(layers(12)));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        for (const scanned of [false, true]) {
          if (scanned) {
            await page.click("#scan");
            await page.waitForSelector("#scanned", { state: "attached" });
            await page.waitForSelector("#work .head .wsd");
          }
          const before = await shownColumns(page);
          for (const name of before) {
            const head = page.locator(`#work .head .${name}`);
            if (!(await head.locator("button").count())) continue;
            await head.locator("button").click();
            await page.waitForSelector(`#work .head .${name}[aria-sort]`);
            await becomes(() => shownColumns(page), before);
            assert.deepEqual(await cutKeys(page, "#work"), []);
          }
          if (before.includes("cp")) assert.ok(await page.locator("#work .row .cp").first().textContent());
          // Back to the order of the file.
          await page.locator(`#work .head [aria-sort] button`).click();
          await page.locator(`#work .head [aria-sort] button`).click();
        }
      },
      { viewport: { width, height: 900 } },
    );
  });
}

for (const width of [1024, 1200]) {
  test(`at ${width} pixels the captions of the heatmap are shown in full`, () =>
    withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", files.model);
        await page.waitForSelector("#work .row");
        await page.locator('#work .row[data-key*="embed_tokens"]').first().click();
        await page.keyboard.press("e");
        await page.waitForSelector(".exp #overview canvas");
        await page.waitForSelector(".under .selected-value");
        await page.hover("#overview");
        const isCut = (parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1).map((part) => part.textContent);
        assert.deepEqual(await page.$$eval("#matrix .main :is(.lab, .read, .selected-value, h2)", isCut), []);
      },
      { viewport: { width, height: 900 } },
    ));
}

test("the list of keys in the share sheet has no scroll bar of its own that cuts a row", () =>
  withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("s");
    const list = page.locator(".shared-keys");
    await list.waitFor();
    const [content, room] = await list.evaluate((list) => [list.scrollHeight, list.clientHeight]);
    assert.ok(content <= room, `${content} of ${room} pixels`);
    // The last row is reached by scrolling the pane, which keys can do.
    await page.getByRole("complementary", { name: "What the other person sees" }).focus();
    await page.keyboard.press("End");
    await becomes(() => list.locator("li").last().evaluate((row) => row.getBoundingClientRect().bottom < document.querySelector(".sheet footer").getBoundingClientRect().top), true);
  }));

test("a rename shows the changed segments in full", async () => {
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", files.model);
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.waitForSelector("#write:not([disabled])");
      await page.getByRole("textbox", { name: "Rename" }).fill("self_attn=>attention");
      await page.waitForSelector("#preview .chg");
      const marks = await page.$$eval("#preview tbody tr:first-child .chg", (marks) => marks.map((mark) => [mark.textContent, mark.scrollWidth <= mark.clientWidth + 1]));
      assert.deepEqual(marks, [
        ["self_attn.", true],
        ["attention.", true],
      ]);
      const lines = await page.$$eval("#preview tbody tr", (rows) => rows.map((row) => Math.round(row.getBoundingClientRect().height)));
      assert.equal(new Set(lines).size, 1, "the number of layers is on the same line");
      // Without a cast there is no dtype column.
      assert.equal(await page.locator("#preview thead :is(th, td)").count(), 3);
    },
    { viewport: { width: 1440, height: 900 } },
  );
});

test("keys before and after a rename are never cut", async () => {
  const path = join(folder, "trained.safetensors");
  writeFileSync(path, floats(layers(12)));
  for (const width of [390, 768, 1440]) {
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        await page.keyboard.press("c");
        await page.waitForSelector("#write:not([disabled])");
        await page.getByRole("textbox", { name: "Rename" }).fill("self_attn=>attention");
        await page.waitForSelector("#preview .chg");
        // Inline elements have a size of 0 × 0, so they are not reported.
        const cut = (parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1).map((part) => part.textContent);
        assert.deepEqual(await page.$$eval("#preview td:not(.ar), #preview td .key > *", cut), []);
        assert.match(await page.locator("#preview tbody tr").first().textContent(), /model\.model\.layers\.0–11\.self_attn\.q_proj\.weight ×12.*model\.model\.layers\.0–11\.attention\.q_proj\.weight/);
      },
      { viewport: { width, height: 900 } },
    );
  }
});

test("E without a selection says what to do, and Escape leaves the go-to box before it clears picked rows", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", files.model);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("e");
    await page.waitForSelector("#notice");
    await page.click("#notice button");
    await page.locator('#work .row[data-key*="embed_tokens"]').first().click();
    await page.locator('#work .row[data-key*="embed_tokens"]').first().click({ modifiers: ["Control"] });
    await page.waitForSelector("#picked");
    await page.keyboard.press("g");
    await page.waitForFunction(() => document.activeElement?.id === "go-to");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.activeElement?.id !== "go-to");
    assert.equal(await page.locator("#picked").count(), 1);
  });
});

test("the menu Open has files, a folder and a URL", async () => {
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", files.model);
      await page.waitForSelector("#work .row");
      await page.click("#open-menu summary");
      await page.locator("#open-menu").getByRole("button", { name: "URL" }).click();
      await page.waitForSelector("#address");
      await page.keyboard.press("Escape");
      await page.click("#open-menu summary");
      const chooser = await choosing(page, () => page.locator("#open-menu").getByRole("button", { name: "Files" }).click());
      await chooser.setFiles(files.smaller);
      await page.waitForFunction(() => document.querySelector(".top .name").textContent.includes("bf16"));
      await page.click("#open-menu summary");
      await page.keyboard.press("Escape");
      assert.equal(await page.locator("#open-menu[open]").count(), 0);
    },
    { viewport: { width: 1440, height: 900 } },
  );
});
