// Printing: all rows below the header, without bars and panes.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, launch, withPage } from "./harness.mjs";
import { safetensors } from "./make.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-print-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const COUNT = 1_000;

for (const colorScheme of ["light", "dark"]) {
  test(`prints the header and all rows, black on white (${colorScheme})`, async () => {
    const path = join(folder, "printed.safetensors");
    writeFileSync(path, safetensors(Array.from({ length: COUNT }, (_, at) => `tensor_${at}_weight`)));
    await withPage(
      browser,
      async (page) => {
        await page.setInputFiles("#choose-files", path);
        await page.waitForSelector("#work .row");
        const rows = () => page.locator("#work .flat > .row").count();
        const drawn = await rows();
        assert.ok(drawn < 200, `${drawn} rows`);
        await page.emulateMedia({ media: "print" });
        await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
        await becomes(rows, COUNT);
        for (const part of [".filterbar", ".tree", ".insp", ".status", ".tape", ".acts"]) {
          assert.equal(await page.locator(`#work ${part}`).first().isVisible(), false, part);
        }
        const header = (await page.innerText("#work .top")).replace(/\s+/g, " ");
        assert.match(header, /printed\.safetensors.*safetensors.*whole.*1,000 tensors/);
        const colors = await page.$eval("#work .row", (row) => [getComputedStyle(document.body).backgroundColor, getComputedStyle(row).color]);
        assert.deepEqual(colors, ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]);
        await page.emulateMedia({ media: "screen" });
        await page.evaluate(() => dispatchEvent(new Event("afterprint")));
        await becomes(rows, drawn);
        // The browser's own printing has all of them, too.
        await page.emulateMedia({ media: null });
        const pdf = (await page.pdf()).toString("latin1");
        const pages = pdf.match(/\/Type\s*\/Page\b(?!s)/g).length;
        assert.ok(pages > 20 && pages < 80, `${pages} pages`);
      },
      { colorScheme },
    );
  });
}
