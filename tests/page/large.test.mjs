// A sparse checkpoint of 10 GB opens and converts within 200 MB of memory.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, withPage } from "./harness.mjs";
import { sparseCheckpoint } from "./make.mjs";
import { marked, memory } from "./memory.mjs";

let browser;
let folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "statelens-large-"));
  browser = await launch([marked()]);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

test("10 GB opens and converts in under 200 MB", { skip: process.platform !== "linux" && "reads /proc" }, async () => {
  const path = join(folder, "ten.pt");
  sparseCheckpoint(path, 10, 250_000_000);
  await withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await page.evaluate(() => new Promise((done) => requestIdleCallback(done)));
    const start = memory();
    let peak = start;
    const watch = setInterval(() => (peak = Math.max(peak, memory())), 200);
    try {
      const began = Date.now();
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work .row");
      const millis = Date.now() - began;
      await page.keyboard.press("c");
      await page.getByRole("radio", { name: "Cerebras" }).first().click();
      await page.waitForFunction(() => document.querySelector(".plan:not(.late) .kv")?.textContent.includes("no extra memory"));
      const size = Number((await page.textContent(".plan .big")).replace(/\D/g, ""));
      assert.ok(size > 10e9 && size < 10.01e9, `${size}`);
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
      await page.waitForSelector("#convert-done");
      assert.match(await page.textContent(".runhead"), new RegExp(size.toLocaleString("en-US")));
      // Other tests compare bytes. This one saves a part of the file, to measure the memory.
      await page.waitForTimeout(5000);
      await download.cancel();
      console.log(`# 10 GB: ${millis} ms to open, ${Math.round(peak - start)} MB above the start at most`);
      assert.ok(peak - start < 200, `${peak - start} MB above the start`);
    } finally {
      clearInterval(watch);
    }
  });
});
