// Arrays that are stored without a dtype are read as the dtype that the user selects.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { command, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-read-as-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const NPZ = "reports/npy_mldtypes/jax_bf16.npz";

/** Waits for a row of a dtype. The list shows the new dtype earlier: as soon as the checkpoint is opened again. */
function isRead(page, dtype) {
  return page.waitForSelector(`#work .row .dt[title*="${dtype}"]`);
}

test("arrays without a dtype get one in the findings or in the inspector (core)", () =>
  withPage(browser, async (page) => {
    // Without a save dialog, the page downloads.
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await drop(page, "body", [dropped(NPZ)]);
    await page.waitForSelector("#work .row");
    await page.waitForSelector(".insp [data-read-as=two]");
    await page.keyboard.press("f");
    await page.waitForSelector('[role="dialog"] [data-read-as=two]');
    assert.equal(await page.locator('[role="dialog"] #read-as').count(), 0, "the title of the finding is the heading");
    assert.equal(await page.locator('[role="dialog"]', { hasText: "--read-as" }).count(), 0, "the page has no options");
    await page.selectOption('[role="dialog"] [data-read-as=two]', "bfloat16");
    await isRead(page, "bfloat16");
    await page.selectOption(".insp [data-read-as=one]", "float8_e4m3fn");
    await isRead(page, "float8_e4m3fn");
    // The output equals the command's. The list loses the focus first, because a key would select one of its options.
    await page.locator(".insp [data-read-as=one]").blur();
    await page.keyboard.press("c");
    await page.locator('[role="dialog"]').getByRole("radio", { name: "safetensors" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    const line = await page.textContent(".cmdline");
    assert.match(line, /--read-as float8_e4m3fn --read-as bfloat16/);
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
    const path = join(folder, "written");
    execFileSync(command, ["convert", fixture(NPZ), path, "--to", "safetensors", "--read-as", "bfloat16", "--read-as", "float8_e4m3fn", "--lossy"]);
    assert.ok(readFileSync(await download.path()).equals(readFileSync(path)));
    await page.keyboard.press("Escape");
    // Resets the array to bytes.
    await page.selectOption(".insp [data-read-as=two]", "");
    await page.waitForFunction(() => document.querySelector(".insp [data-read-as=two]")?.value === "");
  }));

test("arrays of one byte are offered as a float8", () =>
  withPage(browser, async (page) => {
    await drop(page, "body", [dropped("reports/npy_mldtypes/f8_f1.npy")]);
    await page.waitForSelector("#work .row");
    await page.selectOption(".insp [data-read-as=one]", "float8_e5m2");
    await page.waitForFunction(() => document.querySelector("[data-read-as=one]")?.value === "float8_e5m2");
    assert.equal(await page.locator("[data-read-as=two]").count(), 0);
  }));
