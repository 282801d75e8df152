// Measures the passes of the page over all bytes of a file (statistics, comparison, read everything, cast and save)
// compared with a bare read of the same bytes; for `cargo xtask bench`. Slow results are not failures.
//
//     node passes.mjs FILE [OTHER]    OTHER is the file to compare with, or the same file

import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { chromium } from "playwright-core";
import { choosing, launch, site } from "./harness.mjs";

const REPEAT = Number(process.env.STATELENS_REPEAT ?? 3);
const LONG = 600_000;

/** The script of a worker that reads files and discards the data. */
const READER = `onmessage = async ({ data: files }) => {
  for (const file of files) {
    const reader = file.stream().getReader({ mode: "byob" });
    for (let buffer = new ArrayBuffer(4 << 20); ; ) {
      const { value, done } = await reader.read(new Uint8Array(buffer));
      if (done) break;
      buffer = value.buffer;
    }
  }
  postMessage(0);
}`;

/** Runs `work(page)` on the open file, in a new profile: private windows keep what a page writes in memory. */
async function withFile(file, work) {
  const profile = mkdtempSync(join(tmpdir(), "statelens-passes-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.STATELENS_CHROMIUM,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"],
    serviceWorkers: "block",
    acceptDownloads: true,
  });
  try {
    const page = await context.newPage();
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.goto(site);
    await page.waitForSelector("#start");
    await page.waitForTimeout(500);
    await page.setInputFiles("#choose-files", file);
    await page.waitForSelector("#work .row", { timeout: LONG });
    // Background work after opening a file, such as its description.
    await page.waitForTimeout(500);
    return await work(page);
  } finally {
    await context.close();
    rmSync(profile, { recursive: true });
  }
}

/** Returns the milliseconds from a click until an element exists. */
const clicked = (page, button, until) =>
  page.evaluate(
    async ([button, until]) => {
      const began = performance.now();
      document.querySelector(button).click();
      while (!document.querySelector(until)) await new Promise((done) => setTimeout(done, 5));
      return performance.now() - began;
    },
    [button, until],
  );

/** Returns the milliseconds that a worker takes to read files. */
async function bare(browser, files) {
  const context = await browser.newContext({ serviceWorkers: "block" });
  try {
    const page = await context.newPage();
    await page.route(`${site}blank`, (route) => route.fulfill({ contentType: "text/html", body: "<input type=file multiple>" }));
    await page.goto(`${site}blank`);
    await page.setInputFiles("input", files);
    return await page.evaluate(async (script) => {
      const worker = new Worker(URL.createObjectURL(new Blob([script])));
      const began = performance.now();
      const end = new Promise((done) => (worker.onmessage = done));
      worker.postMessage([...document.querySelector("input").files]);
      await end;
      return performance.now() - began;
    }, READER);
  } finally {
    await context.close();
  }
}

const scan = (file) => withFile(file, (page) => clicked(page, "#scan", "#scanned"));

const verify = (file) =>
  withFile(file, async (page) => {
    await page.keyboard.press("v");
    await page.waitForSelector("#verify-begin");
    return clicked(page, "#verify-begin", "#verify-done");
  });

const compare = (file, other) =>
  withFile(file, async (page) => {
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    const began = performance.now();
    await chooser.setFiles(other);
    await page.waitForSelector("#save-report:not([disabled])", { timeout: LONG });
    return performance.now() - began;
  });

const cast = (file) =>
  withFile(file, async (page) => {
    await page.keyboard.press("c");
    for (const choice of ["safetensors", "bf16"]) await page.getByRole("radio", { name: choice, exact: true }).first().click();
    await page.waitForFunction(() => document.querySelector(".plan:not(.late) .kv")?.textContent.includes("bf16"), { timeout: LONG });
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])", { timeout: LONG });
    return clicked(page, "#write", "#convert-done");
  });


const [, , file, other = file] = process.argv;
const browser = await launch();
try {
  const bytes = statSync(file).size;
  console.log(`${basename(file)}, ${(bytes / 1e9).toFixed(2)} GB; best of ${REPEAT}`);
  console.log("  pass               time    bare read   ratio  target");
  const passes = [
    ["statistics", () => scan(file), [file], 1.5],
    ["read everything", () => verify(file), [file], 1.5],
    ["compare", () => compare(file, other), [file, other], 1.5],
    ["cast and save", () => cast(file), [file], 2],
  ];
  for (const [name, pass, read, target] of passes) {
    if (process.env.STATELENS_PASS && !name.includes(process.env.STATELENS_PASS)) continue;
    // Alternately, so that both run under the same load.
    let [time, alone] = [Infinity, Infinity];
    for (let turn = 0; turn < REPEAT; turn++) {
      alone = Math.min(alone, await bare(browser, read));
      time = Math.min(time, await pass());
    }
    const ms = (value) => `${Math.round(value)} ms`.padStart(9);
    console.log(`  ${name.padEnd(16)}${ms(time)}   ${ms(alone)}   ${(time / alone).toFixed(2).padStart(5)}  ${target}`);
  }
} finally {
  await browser.close();
}
