// The page's jobs: how each is started and finished, and the command's result for comparison.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before } from "node:test";
import { choosing, command, launch, withPage, withSlowPage } from "./harness.mjs";

/** Milliseconds to wait on a loaded machine. */
export const LONG = 300_000;

/** The browser and the temporary folder of a test file. Each test file runs in a process of its own. */
export let browser;
export let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-session-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Runs `work` in a page that saves its output as downloads. */
export const tab = (work) => withPage(browser, (page) => downloading(page, work));

/** Runs `work` like `tab`, but the page's worker reads files slowly, as in `withSlowPage`. */
export const slowTab = (slowness, work) => withSlowPage(browser, slowness, (page) => downloading(page, work));

async function downloading(page, work) {
  await page.addInitScript(() => delete window.showSaveFilePicker);
  await page.reload();
  await page.waitForSelector("#start");
  await work(page);
}

export async function open(page, file) {
  await page.setInputFiles("#choose-files", file);
  await page.locator(`#work[data-name*="${basename(file)}"]`).waitFor({ timeout: LONG });
}

/** Returns whether a download is a checkpoint. Reports and summaries are downloads, too. */
export const isWritten = (download) => /\.(pt|mdl)$/.test(download.suggestedFilename());

export async function saved(page, click, predicate = (download) => !isWritten(download)) {
  const [download] = await Promise.all([page.waitForEvent("download", { predicate, timeout: LONG }), click()]);
  return readFileSync(await download.path());
}

export const run = (...args) => {
  const { status, stdout, stderr } = spawnSync(command, args, { maxBuffer: 1 << 28 });
  assert.ok(status === 0 || status === 1, String(stderr));
  return stdout;
};

/**
 * The jobs that can run concurrently. `begin` starts a job in the background, `isRunning` returns whether it still runs,
 * `end` waits for its result, and `expected` returns the result to compare with.
 */
export const jobs = {
  verify: {
    async begin(page) {
      await page.keyboard.press("v");
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-run");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
    },
    async end(page) {
      await page.keyboard.press("v");
      await page.waitForSelector("#verify-done", { timeout: LONG });
      const report = await saved(page, () => page.click("#verify-save"));
      await page.keyboard.press("Escape");
      return report;
    },
    isRunning: async (page) => /verifying/.test(await page.textContent("#verify")),
    expected: ({ a }) => run("verify", a, "--json"),
  },
  write: {
    /** Waits for the plan, so that `begin` writes at once. */
    async prepare(page) {
      await planned(page);
      await page.keyboard.press("Escape");
    },
    async begin(page) {
      await page.keyboard.press("c");
      await page.waitForSelector("#write:not([disabled])");
      page.written = page.waitForEvent("download", { predicate: isWritten, timeout: LONG });
      page.written.catch(() => {});
      await page.click("#write");
      await page.waitForSelector("#convert-run");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
    },
    async end(page) {
      return readFileSync(await (await page.written).path());
    },
    isRunning: async (page) => /writing \d+ %/.test(await page.textContent(".status")),
    expected: ({ a }) => {
      const output = join(folder, "expected.pt");
      execFileSync(command, ["convert", a, output, "--to", "torch", "--lossy", "--force"], { stdio: "pipe" });
      const written = readFileSync(output);
      rmSync(output);
      return written;
    },
  },
  scan: {
    async begin(page) {
      await page.click("#scan");
      await page.waitForSelector("#scanning");
    },
    async end(page) {
      await page.waitForSelector("#scanned", { timeout: LONG });
      // The visible rows, with their columns of values.
      return Buffer.from((await page.locator("#work .row").allTextContents()).join("\n"));
    },
    isRunning: (page) => page.isVisible("#scanning"),
    async expected({ a }) {
      let rows;
      await tab(async (page) => {
        await open(page, a);
        // A scan alone may end before its progress is visible, so `begin` would wait in vain.
        await page.click("#scan");
        rows = await this.end(page);
      });
      assert.match(String(rows), /\d\.\d+/);
      return rows;
    },
  },
  // A comparison has a screen of its own, so it has to start last.
  compare: {
    async begin(page, { b }) {
      const chooser = await choosing(page, () => page.keyboard.press("d"));
      await chooser.setFiles(b);
      await page.waitForSelector("#compare");
    },
    async end(page) {
      await page.waitForSelector("#save-report:not([disabled])", { timeout: LONG });
      const report = await saved(page, () => page.click("#save-report"));
      await page.keyboard.press("Escape");
      await page.waitForSelector("#work");
      return report;
    },
    isRunning: async () => true,
    expected: ({ a, b }) => run("diff", a, b, "--json"),
  },
};

/** Opens the convert sheet and waits for the plan of a PyTorch file. */
export async function planned(page) {
  await page.keyboard.press("c");
  await page.getByRole("radio", { name: "PyTorch" }).first().click();
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

export function same(name, got, expected) {
  assert.ok(got.equals(expected), `${name}: ${got.length} bytes differ from the expected ${expected.length} bytes`);
}
