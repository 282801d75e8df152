// axe finds no serious violations on any screen, light or dark.

import assert from "node:assert/strict";
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, choosing, drop, dropped, fixture, holdStreams, launch, releaseStreams, withPage, withSlowPage } from "./harness.mjs";
import { denseCheckpoint, safetensors } from "./make.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-axe-"));
  mkdirSync(join(folder, "run"));
  for (const [name, from] of [
    ["checkpoint_500.mdl", "v2.10.0/gpt_small.mdl"],
    ["checkpoint_1000.mdl", "v2.10.0/gpt_small.mdl"],
    ["checkpoint_1500.mdl", "errors/no_success.mdl"],
  ]) {
    copyFileSync(fixture(`cerebras/${from}`), join(folder, "run", name));
  }
  const keys = Array.from({ length: 20_000 }, (_, at) => `tensor_${at}_weight`);
  writeFileSync(join(folder, "many.safetensors"), safetensors(keys));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Rules that were violated before; they are checked whatever the impact of a violation. */
const BROKEN = ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"];

/** Checks a screen in light and dark. Opening it again for the dark scheme would take a minute. */
async function check(page, what, found) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    // Colour transitions begin with the next frame; `accessibility` waits until they end.
    await page.evaluate(() => new Promise((frame) => requestAnimationFrame(() => requestAnimationFrame(frame))));
    found.push(...(await accessibility(page, what, BROKEN)).map((violation) => `${colorScheme}: ${violation}`));
  }
}

async function open(page, name) {
  await page.setInputFiles("#choose-files", fixture(name));
  await page.waitForSelector("#work .row");
}

const SIZES = [
  [1440, 900],
  [390, 844],
];
for (const [width, height] of SIZES) {
  test(`every screen at ${width}`, async () => {
    await withPage(
      browser,
      async (page) => {
        const found = [];
        const checkScreen = (page, what) => check(page, what, found);
        await checkScreen(page, "start");
        await open(page, "cerebras/v2.10.0/gpt_small.mdl");
        await checkScreen(page, "workspace");
        await page.keyboard.press("j");
        await page.waitForSelector(".row.sel");
        await checkScreen(page, "a row");
        for (const key of ["c", "f", "s", "v", "?", "u"]) {
          await page.keyboard.press(key);
          await page.waitForSelector('[role="dialog"]');
          // The button changes its colour when the plan is complete.
          if (key === "c") await page.waitForSelector("#write:not([disabled])");
          await page.waitForTimeout(150);
          await checkScreen(page, `sheet ${key}`);
          await page.keyboard.press("Escape");
          await page.waitForSelector('[role="dialog"]', { state: "detached" });
        }
        await page.keyboard.press("Control+k");
        await page.waitForSelector("#palette li");
        await checkScreen(page, "palette");
        await page.keyboard.type("model wte");
        await page.waitForSelector("#palette li .m");
        await checkScreen(page, "palette with keys");
        await page.keyboard.press("Escape");
        await page.keyboard.press("t");
        await page.waitForSelector(".map .box");
        await checkScreen(page, "treemap");
        await page.keyboard.press("t");
        await page.waitForSelector("#work .row");
        await page.keyboard.press("/");
        await page.keyboard.type("nothing_like_it");
        await page.waitForSelector(".empty");
        await checkScreen(page, "nothing found");
        await page.keyboard.press("Escape");
        const chooser = await choosing(page, () => page.keyboard.press("d"));
        await chooser.setFiles(fixture("cerebras/v2.10.0/seed.mdl"));
        await page.waitForSelector("#save-report:not([disabled])");
        await checkScreen(page, "compare");
        await drop(page, "body", [{ name: "x.pt", bytes: "nothing" }]);
        await page.waitForSelector("#error");
        await checkScreen(page, "error");
        await drop(page, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl"), dropped("cerebras/v2.10.0/seed.mdl")].map((file, at) => ({ ...file, name: `run/checkpoint_${at + 1}00.mdl` })));
        await page.waitForTimeout(300);
        await checkScreen(page, "several");
        assert.deepEqual(found, []);
      },
      { viewport: { width, height } },
    );
  });

  test(`what goes on, ends and fails at ${width}`, async () => {
    const source = join(folder, `dense-${width}.safetensors`);
    denseCheckpoint(source, 2, 1);
    const slowly = async (page) => {
      const found = [];
      const checkScreen = (what) => check(page, what, found);
      await page.setInputFiles("#choose-files", source);
      await page.waitForSelector("#work .row");
      // Both sheets start the same read; after it, neither offers it again.
      await holdStreams(page);
      await page.keyboard.press("s");
      await page.click("#read-all");
      await page.getByRole("progressbar", { name: "Reading everything" }).waitFor();
      await checkScreen("reading values");
      await page.getByRole("button", { name: "Stop" }).click();
      await releaseStreams(page);
      await page.waitForSelector("#read-all");
      await page.keyboard.press("Escape");
      await holdStreams(page);
      await page.keyboard.press("v");
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-run");
      await checkScreen("verifying");
      await releaseStreams(page);
      await page.waitForSelector("#verify-done", { timeout: 60_000 });
      await checkScreen("verified");
      await page.keyboard.press("Escape");
      await page.keyboard.press("s");
      await page.locator('#share-statistics[data-state="read"]').waitFor({ timeout: 60_000 });
      await checkScreen("values read");
      await page.keyboard.press("Escape");
      const write = async () => {
        await page.keyboard.press("c");
        // A file that is composed of slices is written at once; a PyTorch file has checksums.
        await page.getByRole("radio", { name: "PyTorch" }).first().click();
        await page.waitForSelector(".plan:not(.late)");
        for (const box of await page.$$(".loss input")) await box.check();
        await page.click("#write:not([disabled])");
        await page.waitForSelector("#convert-run");
      };
      await holdStreams(page);
      await write();
      await checkScreen("writing");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
      await checkScreen("browsing meanwhile");
      await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/seed.mdl"));
      await page.waitForSelector("#stop");
      await checkScreen("whether to stop");
      await page.click("#keep-writing");
      await releaseStreams(page);
      await page.waitForFunction(() => !/writing/.test(document.querySelector(".status").textContent), null, { timeout: 60_000 });
      await write();
      await page.waitForSelector("#convert-done", { timeout: 60_000 });
      await checkScreen("written");
      await page.keyboard.press("Escape");
      await holdStreams(page);
      await write();
      // A changed file can't be read.
      appendFileSync(source, "more");
      await releaseStreams(page);
      await page.waitForSelector("#convert-run", { state: "detached", timeout: 60_000 });
      assert.match(await page.textContent('[role="dialog"]'), /changed, moved or removed/);
      await checkScreen("failed");
      await page.keyboard.press("Escape");
      await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
      await page.waitForFunction(() => document.title.startsWith("gpt_small.mdl"));
      await page.evaluate(() => {
        window.newVersion = () => {};
        dispatchEvent(new Event("newversion"));
      });
      await page.waitForSelector(".news");
      await checkScreen("a newer version");
      assert.deepEqual(found, []);
    };
    await withSlowPage(browser, { streams: [400] }, slowly, { viewport: { width, height } });
  });

  test(`loading, findings and a run folder at ${width}`, async () => {
    const slowly = async (page) => {
      const found = [];
      const checkScreen = (what) => check(page, what, found);
      await page.setInputFiles("#choose-files", join(folder, "many.safetensors"));
      await page.waitForSelector("#loading");
      await checkScreen("loading");
      await page.waitForSelector("#work .row", { timeout: 60_000 });
      await page.setInputFiles("#choose-files", fixture("cerebras/errors/no_success.mdl"));
      await page.waitForFunction(() => document.title.startsWith("no_success.mdl"));
      await page.keyboard.press("f");
      await page.waitForSelector('[role="dialog"] .finding, [role="dialog"] article, [role="dialog"] li');
      await checkScreen("findings");
      await page.keyboard.press("Escape");
      await page.setInputFiles("#choose-folder", join(folder, "run"));
      await page.waitForSelector("#run .row");
      await page.waitForSelector("#save-list:not([disabled])", { state: "attached" });
      await checkScreen("run folder");
      await page.keyboard.press("j");
      await checkScreen("a step of a run folder");
      assert.deepEqual(found, []);
    };
    await withSlowPage(browser, { reads: 600 }, slowly, { viewport: { width, height } });
  });
}
