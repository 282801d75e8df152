// The rules of `statelens check` for a dropped folder: the same findings as the command's, in a table.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, choosing, command, fixture, launch, withPage } from "./harness.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Returns the report of the command. */
function check(name) {
  const { stdout } = spawnSync(command, ["check", fixture(`folders/${name}`), "--json"], { encoding: "utf8" });
  return JSON.parse(stdout);
}

/** Opens a folder by the dialog. */
async function open(page, name) {
  const chooser = await choosing(page, () => page.keyboard.press("Shift+O"));
  await chooser.setFiles(fixture(`folders/${name}`));
  await page.waitForSelector("#work .row, #error");
}

async function show(page) {
  await page.locator('[data-check="folder"]').first().click();
  await page.waitForSelector("#folder-verdict");
}

/** Returns the rows of the table: level, rule, file and key. */
const rows = (page) =>
  page.$$eval(".foldercheck [data-rule]", (rows) =>
    rows.map((row) => {
      const [level, where] = row.cells;
      const file = where.firstChild?.nodeType === Node.TEXT_NODE ? where.firstChild.textContent : "";
      return { level: level.textContent.trim().split(/\s/)[0].replace(row.dataset.rule, ""), rule: row.dataset.rule, file, key: where.querySelector("span")?.textContent ?? "" };
    }),
  );

test("a whole folder, and broken ones, have the findings of the command (core)", async () => {
  await withPage(browser, async (page) => {
    for (const name of ["llama_three_shards", "missing_shard", "config_heads", "tensor_twice_same", "tokenizer_larger"]) {
      const expected = check(name);
      await open(page, name);
      await show(page);
      assert.equal(await page.getAttribute("#folder-verdict", "data-whole"), String(expected.whole), name);
      assert.deepEqual(await rows(page), expected.findings.map(({ level, rule, file, key }) => ({ level, rule, file, key })), name);
      await page.keyboard.press("Escape");
    }
  });
});

test("every folder of the fixtures has the verdict of the command", async () => {
  const names = readdirSync(fixture("folders"), { withFileTypes: true }).filter((entry) => entry.isDirectory()).map(({ name }) => name);
  await withPage(browser, async (page) => {
    for (const name of names) {
      if (readdirSync(fixture(`folders/${name}`)).length < 2) continue;
      const expected = check(name);
      await open(page, name);
      await show(page);
      const found = (await rows(page)).map(({ rule, level }) => `${level} ${rule}`);
      assert.deepEqual(found, expected.findings.map(({ rule, level }) => `${level} ${rule}`), name);
      await page.keyboard.press("Escape");
    }
  });
});

test("a folder that can't be opened can be checked, and the findings lead to the check", async () => {
  await withPage(browser, async (page) => {
    await open(page, "index_broken");
    await show(page);
    await page.waitForSelector('[data-rule="index-broken"]');
    assert.match(await page.innerText('[data-rule="index-broken"]'), /index/);
    await page.keyboard.press("Escape");
    await open(page, "config_layers");
    await page.keyboard.press("f");
    await page.locator('.findings [data-check="folder"]', { hasText: "error" }).click();
    await page.waitForSelector("#folder-verdict");
  });
});

test("the table is accessible, and fits a phone", async () => {
  for (const [width, colorScheme] of [[1440, "light"], [360, "dark"]]) {
    await withPage(
      browser,
      async (page) => {
        await open(page, "config_heads");
        if (width < 720) {
          await page.keyboard.press("f");
          await page.locator('.findings [data-check="folder"]').click();
        } else {
          await page.click('.status [data-check="folder"]');
        }
        await page.waitForSelector("#folder-verdict");
        assert.deepEqual(await accessibility(page, `folder check ${width}`), []);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
      },
      { viewport: { width, height: 800 }, colorScheme },
    );
  }
});

test("a run folder can be checked", async () => {
  const folder = mkdtempSync(join(tmpdir(), "statelens-run-"));
  for (const step of [100, 200]) copyFileSync(fixture("torch/zip_module_state_dict.pt"), join(folder, `checkpoint_${step}.pt`));
  writeFileSync(join(folder, "config.json"), "not JSON");
  await withPage(browser, async (page) => {
    const chooser = await choosing(page, () => page.keyboard.press("Shift+O"));
    await chooser.setFiles(folder);
    await page.waitForSelector("#run .row");
    await show(page);
    const { stdout } = spawnSync(command, ["check", folder, "--json"], { encoding: "utf8" });
    const expected = JSON.parse(stdout).findings.map(({ level, rule, file, key }) => ({ level, rule, file, key }));
    assert.ok(expected.some(({ rule }) => rule === "config-broken"), stdout);
    assert.deepEqual(await rows(page), expected);
  });
  rmSync(folder, { recursive: true });
});
