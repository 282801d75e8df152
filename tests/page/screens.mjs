// Visits the page's main screens, for tests and screenshots.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { choosing, command, drop, fixture } from "./harness.mjs";
import { trainedCheckpoint } from "./make.mjs";

/** Creates the files for the screens: a model, the same in bfloat16, the same after more training, and a run folder. */
export function shownFiles(folder) {
  const names = { model: "llama-tiny.safetensors", smaller: "llama-tiny-bf16.safetensors", later: "llama-tiny-later.safetensors", run: "run" };
  const files = Object.fromEntries(Object.entries(names).map(([file, name]) => [file, join(folder, name)]));
  trainedCheckpoint(files.model);
  trainedCheckpoint(files.later, 16, 96, 100);
  execFileSync(command, ["convert", files.model, files.smaller, "--cast", "bfloat16", "--cast", "*norm*=float32"]);
  mkdirSync(files.run);
  for (const step of [500, 1000, 1500]) copyFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"), join(files.run, `checkpoint_${step}.mdl`));
  copyFileSync(fixture("cerebras/errors/no_success.mdl"), join(files.run, "checkpoint_2000.mdl"));
  return files;
}

/** Opens each screen with these files, and calls `visit(screen)`. */
export async function screens(page, { model, smaller, run }, visit) {
  const closed = () => page.waitForSelector('[role="dialog"]', { state: "detached" });
  const tab = async (name) => {
    const tab = page.getByRole("tab", { name });
    if (await tab.isVisible()) await tab.click();
  };
  await visit("start");
  await page.setInputFiles("#choose-files", model);
  await page.waitForSelector("#work .row");
  await visit("workspace");
  await page.keyboard.press("j");
  await page.locator('#work .row[data-key*="embed_tokens"]').first().click();
  await page.waitForSelector("#statistics .two", { state: "attached" });
  await page.waitForSelector(".histogram svg", { state: "attached" });
  await visit("inspector");
  await tab("Keys");
  await page.evaluate(() => document.querySelector("#scan").click());
  await page.waitForSelector("#scanned", { state: "attached" });
  await visit("scanned");
  await page.keyboard.press("f");
  await page.waitForSelector('[role="dialog"] svg.depth');
  await visit("findings");
  await page.keyboard.press("Escape");
  await closed();
  await page.keyboard.press("e");
  await page.waitForSelector(".exp #overview canvas");
  await page.waitForSelector(".exp #lens canvas", { state: "attached" });
  await visit("expanded");
  await page.keyboard.press("Escape");
  await page.waitForSelector(".exp", { state: "detached" });
  await tab("Keys");
  await page.keyboard.press("t");
  await page.waitForSelector(".map .box");
  await visit("treemap");
  await page.keyboard.press("t");
  for (const [key, screen, ready] of [
    ["c", "convert", "#write:not([disabled])"],
    ["s", "share", '[role="dialog"]'],
    ["v", "verify", "#verify-begin"],
  ]) {
    await page.keyboard.press(key);
    await page.waitForSelector(ready);
    if (key === "v") {
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-done");
    }
    await page.waitForTimeout(150);
    await visit(screen);
    await page.keyboard.press("Escape");
    await closed();
    if (key === "v") await visit("verified");
  }
  const chooser = await choosing(page, () => page.keyboard.press("d"));
  await chooser.setFiles(smaller);
  await page.waitForSelector("#save-report:not([disabled])");
  await page.locator('#compare .row[data-key*="down_proj"]').first().click();
  await page.waitForSelector("#closer #where", { state: "attached" });
  await visit("compare");
  await page.setInputFiles("#choose-folder", run);
  await page.waitForSelector("#run .row", { state: "attached" });
  await tab("Chart");
  await page.click("#read-run:not([disabled])");
  await page.waitForSelector("#run-values .chart", { state: "attached" });
  await page.waitForSelector("#read-run, #stop-values", { state: "detached" });
  await visit("run");
  await drop(page, "body", [{ name: "x.pt", bytes: "nothing" }]);
  await page.waitForSelector("#error");
  await visit("error");
}

/** Waits until all finite animations have ended. */
export async function rest(page) {
  await page.evaluate(() => {
    const finite = document.getAnimations().filter((one) => one.effect?.getComputedTiming().iterations !== Infinity);
    return Promise.all(finite.map((one) => one.finished.catch(() => {})));
  });
}
