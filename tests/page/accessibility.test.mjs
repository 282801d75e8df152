// Accessibility of every main screen: forced colours, 200 % zoom, narrow and wide windows, text alternatives, reduced motion,
// right-to-left keys.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, choosing, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";
import { rest, screens, shownFiles } from "./screens.mjs";
import * as checks from "./accessibility.mjs";

let browser;
let folder;
let files;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-accessibility-"));
  files = shownFiles(folder);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Collects the problems of all screens, and fails if there are any. */
async function all(options, collect) {
  await withPage(
    browser,
    async (page) => {
      page.setDefaultTimeout(20_000);
      const found = [];
      await screens(page, files, async (screen) => {
        await rest(page);
        if (process.env.STATELENS_PICTURES) {
          await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `${screen}-${options.name}.png`) });
        }
        for (const problem of await collect(page, screen)) found.push(`${screen}: ${problem}`);
      });
      assert.deepEqual(found, []);
    },
    options,
  );
}

/** Presses Tab until the focus returns; lists controls that do not show the focus, or are outside the window. */
async function stops(page) {
  const found = [];
  await page.evaluate(() => {
    globalThis.stops = [];
    document.activeElement?.blur();
  });
  for (let keys = 0, again = 0; keys < 160 && again < 3; keys++) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(checks.focused);
    again += Number(!stop || stop.before);
    if (!stop || stop.before) continue;
    if (!stop.seen) found.push(`the focus is invisible on ${stop.name}`);
    if (!stop.inside) found.push(`the focus is outside the window on ${stop.name}`);
  }
  await page.evaluate(() => document.activeElement?.blur());
  return found;
}

for (const colorScheme of ["light", "dark"]) {
  test(`with forced colours, ${colorScheme}, nothing is conveyed by background alone, and the focus is visible`, async () => {
    await all({ name: `forced-${colorScheme}`, colorScheme, viewport: { width: 1440, height: 900 } }, async (page, screen) => {
      await page.emulateMedia({ forcedColors: "none", reducedMotion: "reduce" });
      await page.evaluate(checks.recordBackgrounds);
      await page.emulateMedia({ forcedColors: "active" });
      const found = [...(await page.evaluate(checks.lostBackgrounds)), ...(await page.evaluate(checks.indistinct))];
      if (process.env.STATELENS_PICTURES) await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `${screen}-forced-${colorScheme}.png`) });
      if (colorScheme === "light") found.push(...(await stops(page)));
      await page.emulateMedia({ forcedColors: "none" });
      return found;
    });
  });
}

test("at 200 % zoom nothing is cut off, covered or unreachable", async () => {
  await all({ name: "zoomed", viewport: { width: 720, height: 450 } }, async (page) => [
    ...(await page.evaluate(checks.outside)),
    ...(await page.evaluate(checks.unreachable)),
    ...(await page.evaluate(checks.tooSmall)),
  ]);
});

for (const [width, height] of [
  [360, 740],
  [3840, 2160],
]) {
  test(`at ${width} pixels no texts overlap, and nothing is outside the window`, async () => {
    await all({ name: String(width), viewport: { width, height } }, async (page) => [
      ...(await page.evaluate(checks.outside)),
      ...(await page.evaluate(checks.overlapping)),
      ...(await page.evaluate(checks.tooSmall)),
      ...(await page.evaluate(checks.stretched)),
    ]);
  });
}

test("headings are in order, and no head of a table is empty", async () => {
  const rules = ["page-has-heading-one", "heading-order", "empty-table-header"];
  await all({ name: "headings", viewport: { width: 1440, height: 900 } }, async (page) => {
    const found = await accessibility(page, "headings", rules);
    return found.filter((problem) => rules.some((rule) => problem.includes(`${rule}:`)));
  });
});

test("pictures have text alternatives", async () => {
  await all({ name: "heard", viewport: { width: 1440, height: 900 } }, (page) => page.evaluate(checks.unlabelled));
});

test("nothing moves with reduced motion", async () => {
  await withPage(browser, async (page) => {
    // Shows that the check finds animations.
    assert.notDeepEqual(await page.evaluate(checks.moving), []);
  });
  await all({ name: "still", reducedMotion: "reduce" }, (page) => page.evaluate(checks.moving));
});

/** Right-to-left keys, a key with an override character, one with many combining marks, and a plain one. */
const KEYS = [
  "نموذج.طبقات.0.انتباه.وزن",
  "נוירון.שכבה.0.משקל",
  "model.\u202egnp.thgiew",
  "z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034da\u0352\u0308.e\u0301\u0323\u0332\u0320.weight",
  "plain.weight",
];

for (const [width, height] of [
  [1440, 900],
  [390, 844],
]) {
  test(`right-to-left keys and combining marks stay within their cells at ${width}`, async () => {
    const path = join(folder, "right.safetensors");
    writeFileSync(path, floats(Object.fromEntries(KEYS.map((key, at) => [key, [at + 1, NaN, 2]]))));
    const other = join(folder, "left.safetensors");
    writeFileSync(other, floats(Object.fromEntries(KEYS.map((key, at) => [key, [at + 2, 3, 2]]))));
    await withPage(
      browser,
      async (page) => {
        const found = [];
        const collect = async (screen) => {
          await rest(page);
          if (process.env.STATELENS_PICTURES) await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `right-${screen}-${width}.png`) });
          for (const problem of await page.evaluate(checks.unisolated, KEYS)) found.push(`${screen}: ${problem}`);
          for (const problem of await page.evaluate(checks.outside)) found.push(`${screen}: ${problem}`);
        };
        const even = async (rows) => {
          const boxes = await page.$$eval(rows, (rows) =>
            rows.map((row) => ({
              height: row.getBoundingClientRect().height,
              places: [...row.children].filter((cell) => cell.checkVisibility()).map((cell) => Math.round(cell.getBoundingClientRect().left)),
              over: [...row.querySelectorAll(".key > *")].some((part) => part.getBoundingClientRect().bottom > row.getBoundingClientRect().bottom + 1),
            })),
          );
          assert.equal(boxes.length, KEYS.length);
          assert.equal(new Set(boxes.map(({ height }) => height)).size, 1, JSON.stringify(boxes));
          if (width > 1000) assert.equal(new Set(boxes.map(({ places }) => String(places))).size, 1, JSON.stringify(boxes));
          assert.ok(!boxes.some(({ over }) => over), JSON.stringify(boxes));
        };
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        await even("#work .row:not(.grp)");
        // The parts of a key are in the order of its path, whatever the direction of their text.
        const order = await page.$$eval("#work .row .key", (keys) =>
          keys.map((key) => [...key.children].map((part) => part.getBoundingClientRect().left)).filter((lefts) => lefts.some((left, at) => at && left < lefts[at - 1])),
        );
        assert.deepEqual(order, []);
        await collect("workspace");
        for (let at = 0; at < KEYS.length; at++) {
          await page.keyboard.press("j");
          await page.waitForSelector("#statistics .two", { state: "attached" });
          await collect(`inspector ${at}`);
        }
        await page.evaluate(() => document.querySelector("#scan").click());
        await page.waitForSelector("#scanned", { state: "attached" });
        await page.keyboard.press("f");
        await page.waitForSelector('[role="dialog"]');
        await collect("findings");
        await page.keyboard.press("Escape");
        await page.keyboard.press("t");
        await page.waitForSelector(".map .box");
        await collect("treemap");
        await page.keyboard.press("t");
        await page.keyboard.press("c");
        await page.waitForSelector("#write:not([disabled])");
        await collect("convert");
        await page.keyboard.press("Escape");
        await page.waitForSelector('[role="dialog"]', { state: "detached" });
        const chooser = await choosing(page, () => page.keyboard.press("d"));
        await chooser.setFiles(other);
        await page.waitForSelector("#save-report:not([disabled])");
        await even("#compare .row");
        await collect("compare");
        assert.deepEqual(found, []);
      },
      { viewport: { width, height } },
    );
  });
}
