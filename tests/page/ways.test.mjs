// Every main screen in other ways to see and hear it: forced colours, twice as large, on a telephone and on a wall, by ear,
// without motion, and with keys that run from right to left.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, launch, withPage } from "./harness.mjs";
import { floats } from "./make.mjs";
import { rest, screens, shownFiles } from "./screens.mjs";
import * as ways from "./ways.mjs";

let browser;
let folder;
let files;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-ways-"));
  files = shownFiles(folder);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Looks at all screens, and fails with what was found on any. */
async function all(options, look) {
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
        for (const told of await look(page, screen)) found.push(`${screen}: ${told}`);
      });
      assert.deepEqual(found, []);
    },
    options,
  );
}

/** Goes from control to control by the Tab key, once around; what does not show that it has the focus, or is not there. */
async function stops(page) {
  const found = [];
  await page.evaluate(() => {
    globalThis.stops = [];
    document.activeElement?.blur();
  });
  for (let keys = 0, again = 0; keys < 160 && again < 3; keys++) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(ways.focused);
    again += Number(!stop || stop.before);
    if (!stop || stop.before) continue;
    if (!stop.seen) found.push(`the focus is not seen on ${stop.name}`);
    if (!stop.inside) found.push(`the focus goes out of sight to ${stop.name}`);
  }
  await page.evaluate(() => document.activeElement?.blur());
  return found;
}

for (const colorScheme of ["light", "dark"]) {
  test(`with forced colours, ${colorScheme}, what matters is not said by a ground alone, and the focus is seen`, async () => {
    await all({ name: `forced-${colorScheme}`, colorScheme, viewport: { width: 1440, height: 900 } }, async (page, screen) => {
      await page.emulateMedia({ forcedColors: "none", reducedMotion: "reduce" });
      await page.evaluate(ways.painted);
      await page.emulateMedia({ forcedColors: "active" });
      const found = [...(await page.evaluate(ways.unpainted)), ...(await page.evaluate(ways.alike))];
      if (process.env.STATELENS_PICTURES) await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `${screen}-forced-${colorScheme}.png`) });
      if (colorScheme === "light") found.push(...(await stops(page)));
      await page.emulateMedia({ forcedColors: "none" });
      return found;
    });
  });
}

test("twice as large nothing is cut off, lies under something or is out of reach", async () => {
  await all({ name: "zoomed", viewport: { width: 720, height: 450 } }, async (page) => [
    ...(await page.evaluate(ways.beyond)),
    ...(await page.evaluate(ways.unreachable)),
    ...(await page.evaluate(ways.squeezed)),
  ]);
});

for (const [width, height] of [
  [360, 740],
  [3840, 2160],
]) {
  test(`at ${width} pixels no text lies over another, and nothing is beyond the window`, async () => {
    await all({ name: String(width), viewport: { width, height } }, async (page) => [
      ...(await page.evaluate(ways.beyond)),
      ...(await page.evaluate(ways.overlapping)),
      ...(await page.evaluate(ways.squeezed)),
      ...(await page.evaluate(ways.strewn)),
    ]);
  });
}

test("pictures say their numbers", async () => {
  await all({ name: "heard", viewport: { width: 1440, height: 900 } }, (page) => page.evaluate(ways.silent));
});

test("nothing moves where no motion is wished", async () => {
  await withPage(browser, async (page) => {
    // Else this would find nothing anywhere.
    assert.notDeepEqual(await page.evaluate(ways.moving), []);
  });
  await all({ name: "still", reducedMotion: "reduce" }, (page) => page.evaluate(ways.moving));
});

/** Keys from right to left, with marks upon marks, and with signs that turn text around. */
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
  test(`keys from right to left and with many marks stay in their places at ${width}`, async () => {
    const path = join(folder, "right.safetensors");
    writeFileSync(path, floats(Object.fromEntries(KEYS.map((key, at) => [key, [at + 1, NaN, 2]]))));
    const other = join(folder, "left.safetensors");
    writeFileSync(other, floats(Object.fromEntries(KEYS.map((key, at) => [key, [at + 2, 3, 2]]))));
    await withPage(
      browser,
      async (page) => {
        const found = [];
        const look = async (screen) => {
          await rest(page);
          if (process.env.STATELENS_PICTURES) await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `right-${screen}-${width}.png`) });
          for (const told of await page.evaluate(ways.unisolated, KEYS)) found.push(`${screen}: ${told}`);
          for (const told of await page.evaluate(ways.beyond)) found.push(`${screen}: ${told}`);
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
        // The parts of a key stand in its order, whichever way each runs.
        const order = await page.$$eval("#work .row .key", (keys) =>
          keys.map((key) => [...key.children].map((part) => part.getBoundingClientRect().left)).filter((lefts) => lefts.some((left, at) => at && left < lefts[at - 1])),
        );
        assert.deepEqual(order, []);
        await look("workspace");
        for (let at = 0; at < KEYS.length; at++) {
          await page.keyboard.press("j");
          await page.waitForSelector("#statistics .two", { state: "attached" });
          await look(`inspector ${at}`);
        }
        await page.evaluate(() => document.querySelector("#scan").click());
        await page.waitForSelector("#scanned", { state: "attached" });
        await page.keyboard.press("f");
        await page.waitForSelector('[role="dialog"]');
        await look("findings");
        await page.keyboard.press("Escape");
        await page.keyboard.press("t");
        await page.waitForSelector(".map .box");
        await look("treemap");
        await page.keyboard.press("t");
        await page.keyboard.press("c");
        await page.waitForSelector("#write:not([disabled])");
        await look("convert");
        await page.keyboard.press("Escape");
        await page.waitForSelector('[role="dialog"]', { state: "detached" });
        const chooser = await choosing(page, () => page.keyboard.press("d"));
        await chooser.setFiles(other);
        await page.waitForSelector("#save-report:not([disabled])");
        await even("#compare .row");
        await look("compare");
        assert.deepEqual(found, []);
      },
      { viewport: { width, height } },
    );
  });
}
