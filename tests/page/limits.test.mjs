// Files that expand far beyond their size: the page asks before it processes them, and files over a limit open on request.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, drop, dropped, fixture, launch, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("files over a limit open with higher limits on request (core)", async () => {
  // Nested lists, 1,500 deep, with a number in the innermost.
  const deep = Buffer.concat([Buffer.from([0x80, 2]), Buffer.alloc(1500, "]"), Buffer.from("K\x07"), Buffer.alloc(1500, "a"), Buffer.from(".")]);
  await withPage(browser, async (page) => {
    await drop(page, "body", [{ name: "deep.pkl", bytes: deep }]);
    await page.waitForSelector("#error");
    assert.match(await page.textContent("#error"), /Over a limit/);
    assert.doesNotMatch(await page.textContent("#error main"), /--limit/);
    assert.match(await page.textContent(".hint:has(#raise)"), /memory and a few minutes/);
    await page.click("#raise");
    await page.waitForSelector("#work .row");
    await page.locator("#work .row .cv .v", { hasText: "7" }).waitFor();
  });
});

test("data that unpacks to far more is read and written only after confirmation", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped("attacks2/h5_fill_2000x1GB.h5")]);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("v");
    await page.waitForSelector("#verify-begin");
    assert.ok(await page.isDisabled("#verify-begin"));
    assert.match(await page.textContent("#verify-form"), /Unpack 2(\.00)? TB from [\d.]+ kB in the file/);
    await page.check("#verify-form .far-more");
    assert.ok(await page.isEnabled("#verify-begin"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("s");
    const read = page.locator("#read-all");
    await read.waitFor();
    // The confirmation applies to this read as well, and can be revoked.
    assert.ok(await page.isChecked(".far-more"));
    await page.uncheck(".far-more");
    assert.ok(await read.isDisabled());
    await page.check(".far-more");
    assert.ok(await read.isEnabled());
    await page.keyboard.press("Escape");
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.waitForSelector(".plan:not(.late) .loss");
    assert.match(await page.textContent(".plan"), /This writes 2(\.00)? TB from a source of/);
    assert.ok(await page.isDisabled("#write"));
  });
});

test("data that unpacks to far more is not compared without confirmation", async () => {
  const name = "attacks2/torch_expand_8GB.pt";
  await withPage(browser, async (page) => {
    await drop(page, "body", [dropped(name)]);
    await page.waitForSelector("#work .row");
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(fixture(name));
    await page.waitForSelector('#verdict[data-state="failed"]');
    assert.match(await page.textContent("#compare"), /Over a limit.*more than 1000 times its size/);
    assert.ok(await page.isDisabled("#save-report"));
  });
});

test("a tensor that takes too many passes to reorder is written on request", async () => {
  const folder = mkdtempSync(join(tmpdir(), "statelens-limits-"));
  try {
    // A sparse file of 4 GiB, in column order.
    const path = join(folder, "columns.npy");
    const text = "{'descr': '<f4', 'fortran_order': True, 'shape': (32768, 32768), }";
    const head = Buffer.from(`\x93NUMPY\x01\x00..${text.padEnd(117)}\n`, "latin1");
    head.writeUInt16LE(118, 8);
    writeFileSync(path, head);
    truncateSync(path, 128 + 32768 * 32768 * 4);
    await withPage(browser, async (page) => {
      await page.addInitScript(() => delete window.showSaveFilePicker);
      await page.reload();
      await page.waitForSelector("#start");
      const write = async () => {
        await page.waitForSelector("#work .row");
        await page.keyboard.press("c");
        await page.getByRole("radio", { name: "safetensors" }).first().click();
        await page.waitForSelector(".plan:not(.late)");
        for (const box of await page.$$(".loss input")) await box.check();
        await page.click("#write");
      };
      await page.setInputFiles("#choose-files", path);
      await write();
      const failed = page.locator(".runbody[role=alert]");
      await failed.waitFor();
      assert.match(await failed.textContent(), /Over a limit.* stores the elements of a tensor in another order.* would be read 256 times here, 279 GB in all/);
      assert.match(await failed.textContent(), /with scratch space on disk/);
      await page.click("#raise");
      await page.waitForSelector("#convert-run, .sheet", { state: "detached" });
      await write();
      await page.waitForSelector("#convert-run");
      await page.waitForTimeout(2000);
      assert.equal(await page.$("[role=alert].runbody"), null);
      await page.click("#cancel");
      await page.waitForSelector("#write");
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
