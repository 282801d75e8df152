// Back, Forward and Escape: open checkpoints are entries of the browser's history, and a single key loses no work.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, drawn, fixture, holdStreams, launch, releaseStreams, site, withPage, withSlowPage } from "./harness.mjs";
import { denseCheckpoint, manyKeys } from "./make.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-history-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const example = `${site}examples/gpt_small.mdl`;
const shows = (page, name) => page.waitForSelector(`#work[data-name*="${name}"]`);

async function open(page, name) {
  await page.setInputFiles("#choose-files", fixture(name));
  await shows(page, name.split("/").pop());
}

/** Opens a URL by keyboard: U, the URL, Enter. */
async function openAddress(page, address) {
  await page.keyboard.press("u");
  await page.waitForSelector("#address");
  await page.fill("#address input", address);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#work .row");
}

test("a typed address opens without an exception", async () => {
  // `withPage` fails on uncaught errors.
  await withPage(browser, async (page) => {
    await openAddress(page, example);
    await drawn(page);
  });
});

test("Back and Forward step through opened checkpoints and stay on the page (core)", async () => {
  await withPage(browser, async (page) => {
    await open(page, "torch/zip_training_ckpt.pt");
    await open(page, "cerebras/v2.10.0/seed.mdl");
    await page.goBack();
    await shows(page, "zip_training_ckpt.pt");
    await page.goForward();
    await shows(page, "seed.mdl");
    await page.goBack();
    await page.goBack();
    await page.waitForSelector("#start");
    await page.goForward();
    await shows(page, "zip_training_ckpt.pt");
  });
});

test("Back cancels opening", async () => {
  const many = join(folder, "many.pkl");
  writeFileSync(many, manyKeys(60_000));
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", many);
    // The history entry exists as soon as opening begins.
    await page.waitForFunction(() => history.state === 1);
    await page.goBack();
    await page.waitForSelector("#start");
    await page.waitForTimeout(2_000);
    assert.ok(await page.isVisible("#start"), "the first screen stays");
    // The next file opens as usual.
    await open(page, "cerebras/v2.10.0/seed.mdl");
  });
});

test("the URL names a remote checkpoint only while it is open", async () => {
  await withPage(browser, async (page) => {
    await openAddress(page, example);
    assert.equal(new URL(page.url()).searchParams.get("url"), example);
    // The URL opens the same checkpoint.
    await page.reload();
    await shows(page, "gpt_small.mdl");
    await open(page, "cerebras/v2.10.0/seed.mdl");
    assert.equal(new URL(page.url()).search, "");
    await page.goBack();
    await shows(page, "gpt_small.mdl");
    assert.equal(new URL(page.url()).searchParams.get("url"), example);
    // The home button clears the URL, too.
    await page.click(".home");
    await page.waitForSelector("#start");
    assert.equal(new URL(page.url()).search, "");
  });
});

test("Back closes a comparison without reopening the checkpoint, and closes sheets", async () => {
  await withPage(browser, async (page) => {
    await open(page, "cerebras/v2.10.0/seed.mdl");
    await page.keyboard.press("j");
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(fixture("torch/zip_training_ckpt.pt"));
    await page.waitForSelector("#compare");
    await page.goBack();
    await page.waitForSelector("#work .row.sel");
    await page.keyboard.press("f");
    await page.waitForSelector('[role="dialog"]');
    await page.goBack();
    await page.waitForSelector('[role="dialog"]', { state: "detached" });
    await shows(page, "seed.mdl");
    await page.goBack();
    await page.waitForSelector("#start");
  });
});

test("Escape and Back ask before a running write is lost", async () => {
  const large = join(folder, "large.safetensors");
  denseCheckpoint(large, 1, 1);
  await withSlowPage(browser, {}, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await page.setInputFiles("#choose-files", large);
    await shows(page, "large.safetensors");
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    const saved = page.waitForEvent("download");
    await holdStreams(page);
    await page.click("#write:not([disabled])");
    await page.waitForSelector("#convert-run");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#stop");
    assert.match(await page.textContent("#stop"), /being written/);
    await page.click("#keep-writing");
    await page.waitForSelector("#stop", { state: "detached" });
    await page.getByRole("button", { name: "Browse meanwhile" }).click();
    await page.waitForSelector("#convert-run", { state: "detached" });
    await page.goBack();
    await page.waitForSelector("#stop");
    await shows(page, "large.safetensors");
    await page.click("#keep-writing");
    await releaseStreams(page);
    await saved;
    await shows(page, "large.safetensors");
    await page.goBack();
    await page.waitForSelector("#start");
  });
});
