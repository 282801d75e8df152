// What axe finds on every screen, light and dark: nothing serious.

import assert from "node:assert/strict";
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, choosing, drop, dropped, fixture, launch, withPage, withSlowPage } from "./harness.mjs";
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

/** What broke rules before, and is collected with what is serious. */
const BROKEN = ["aria-required-children", "label-content-name-mismatch", "scrollable-region-focusable", "landmark-one-main"];

/** Looks at a screen as it is, then in the dark: to come here again for it would take a minute. */
async function look(page, what, found) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    // Where colours change slowly that begins with the next frame, and is waited for.
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
        const sound = (page, what) => look(page, what, found);
        await sound(page, "start");
        await open(page, "cerebras/v2.10.0/gpt_small.mdl");
        await sound(page, "workspace");
        await page.keyboard.press("j");
        await page.waitForSelector(".row.sel");
        await sound(page, "a row");
        for (const key of ["c", "f", "s", "v", "?", "u"]) {
          await page.keyboard.press(key);
          await page.waitForSelector('[role="dialog"]');
          // The button changes its colour once the plan is there.
          if (key === "c") await page.waitForSelector("#write:not([disabled])");
          await page.waitForTimeout(150);
          await sound(page, `sheet ${key}`);
          await page.keyboard.press("Escape");
          await page.waitForSelector('[role="dialog"]', { state: "detached" });
        }
        await page.keyboard.press("/");
        await page.keyboard.type("nothing_like_it");
        await page.waitForSelector(".empty");
        await sound(page, "nothing found");
        await page.keyboard.press("Escape");
        const chooser = await choosing(page, () => page.keyboard.press("d"));
        await chooser.setFiles(fixture("cerebras/v2.10.0/seed.mdl"));
        await page.waitForSelector("#save-report:not([disabled])");
        await sound(page, "compare");
        await drop(page, "body", [{ name: "x.pt", bytes: "nothing" }]);
        await page.waitForSelector("#error");
        await sound(page, "error");
        await drop(page, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl"), dropped("cerebras/v2.10.0/seed.mdl")].map((file, at) => ({ ...file, name: `run/checkpoint_${at + 1}00.mdl` })));
        await page.waitForTimeout(300);
        await sound(page, "several");
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
      const sound = (what) => look(page, what, found);
      await page.setInputFiles("#choose-files", source);
      await page.waitForSelector("#work .row");
      // The same read begins in two sheets; of a file that was read, neither offers it again.
      await page.keyboard.press("s");
      await page.click("#read-all");
      await page.getByRole("progressbar", { name: "Reading everything" }).waitFor();
      await sound("reading values");
      await page.getByRole("button", { name: "Stop" }).click();
      await page.waitForSelector("#read-all");
      await page.keyboard.press("Escape");
      await page.keyboard.press("v");
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-run");
      await sound("verifying");
      await page.waitForSelector("#verify-done", { timeout: 60_000 });
      await sound("verified");
      await page.keyboard.press("Escape");
      await page.keyboard.press("s");
      await page.locator('#share-statistics[data-state="read"]').waitFor({ timeout: 60_000 });
      await sound("values read");
      await page.keyboard.press("Escape");
      const write = async () => {
        await page.keyboard.press("c");
        // What is composed of slices is written in no time; a PyTorch file has checksums.
        await page.getByRole("radio", { name: "PyTorch" }).first().click();
        await page.waitForSelector(".plan:not(.late)");
        for (const box of await page.$$(".loss input")) await box.check();
        await page.click("#write:not([disabled])");
        await page.waitForSelector("#convert-run");
      };
      await write();
      await sound("writing");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
      await sound("browsing meanwhile");
      await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/seed.mdl"));
      await page.waitForSelector("#stop");
      await sound("whether to stop");
      await page.click("#keep-writing");
      await page.waitForFunction(() => !/writing/.test(document.querySelector(".status").textContent), null, { timeout: 60_000 });
      await write();
      await page.waitForSelector("#convert-done", { timeout: 60_000 });
      await sound("written");
      await page.keyboard.press("Escape");
      await write();
      // The file is not what it was: reading it fails.
      appendFileSync(source, "more");
      await page.waitForSelector("#convert-run", { state: "detached", timeout: 60_000 });
      assert.match(await page.textContent('[role="dialog"]'), /changed, moved or removed/);
      await sound("failed");
      await page.keyboard.press("Escape");
      await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
      await page.waitForFunction(() => document.title.startsWith("gpt_small.mdl"));
      await page.evaluate(() => {
        window.newVersion = () => {};
        dispatchEvent(new Event("newversion"));
      });
      await page.waitForSelector(".news");
      await sound("a newer version");
      assert.deepEqual(found, []);
    };
    await withSlowPage(browser, { streams: [400] }, slowly, { viewport: { width, height } });
  });

  test(`loading, findings and a run folder at ${width}`, async () => {
    const slowly = async (page) => {
      const found = [];
      const sound = (what) => look(page, what, found);
      await page.setInputFiles("#choose-files", join(folder, "many.safetensors"));
      await page.waitForSelector("#loading");
      await sound("loading");
      await page.waitForSelector("#work .row", { timeout: 60_000 });
      await page.setInputFiles("#choose-files", fixture("cerebras/errors/no_success.mdl"));
      await page.waitForFunction(() => document.title.startsWith("no_success.mdl"));
      await page.keyboard.press("f");
      await page.waitForSelector('[role="dialog"] .finding, [role="dialog"] article, [role="dialog"] li');
      await sound("findings");
      await page.keyboard.press("Escape");
      await page.setInputFiles("#choose-folder", join(folder, "run"));
      await page.waitForSelector("#run .row");
      await page.waitForSelector("#save-list:not([disabled])", { state: "attached" });
      await sound("run folder");
      await page.keyboard.press("j");
      await sound("a step of a run folder");
      assert.deepEqual(found, []);
    };
    await withSlowPage(browser, { reads: 600 }, slowly, { viewport: { width, height } });
  });
}
