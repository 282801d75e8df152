// Files from the desktop: pasted, opened with the installed page, and opened before.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { dropped, launch, root, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const seed = dropped("cerebras/v2.10.0/seed.mdl");
const opened = (page, name) => page.waitForFunction((name) => document.title.startsWith(name), name);

/** Creates a file handle, like one from the desktop or a dialog, in the private file system. Keeps it in `handles`. */
async function handle(page, { name, bytes }) {
  await page.evaluate(
    async ({ name, base64 }) => {
      const folder = await navigator.storage.getDirectory();
      const file = await folder.getFileHandle(name, { create: true });
      const stream = await file.createWritable();
      await stream.write(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
      await stream.close();
      globalThis.handles = { ...globalThis.handles, [name]: file };
    },
    { name, base64: Buffer.from(bytes).toString("base64") },
  );
}

test("a pasted file opens, pasted text does not", async () => {
  await withPage(browser, async (page) => {
    const paste = (file) =>
      page.evaluate((file) => {
        const clipboardData = new DataTransfer();
        if (file) clipboardData.items.add(new File([Uint8Array.from(atob(file.base64), (letter) => letter.charCodeAt(0))], file.name));
        else clipboardData.setData("text/plain", "a.b");
        return document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
      }, file);
    assert.equal(await paste(null), true, "text is left to the browser");
    assert.ok(await page.$("#start"));
    assert.equal(await paste({ name: seed.name, base64: Buffer.from(seed.bytes).toString("base64") }), false);
    await opened(page, "seed.mdl");
    await page.waitForSelector("#work .row");
  });
});

test("files opened with the installed page open", async () => {
  await withPage(browser, async (page) => {
    await page.addInitScript(() => {
      const value = { setConsumer: (consumer) => (globalThis.launched = consumer) };
      Object.defineProperty(globalThis, "launchQueue", { value });
    });
    await page.reload();
    await page.waitForSelector("#start");
    await handle(page, seed);
    await page.evaluate(() => globalThis.launched({ files: [] }));
    assert.ok(await page.$("#start"), "started without a file");
    await page.evaluate(() => globalThis.launched({ files: [globalThis.handles["seed.mdl"]] }));
    await opened(page, "seed.mdl");
    // A second launch replaces the open checkpoint.
    await handle(page, { name: "other.mdl", bytes: seed.bytes });
    await page.evaluate(() => globalThis.launched({ files: [globalThis.handles["other.mdl"]] }));
    await opened(page, "other.mdl");
  });
});

test("the manifest names the extensions of the formats, and no others", () => {
  const manifest = JSON.parse(readFileSync(`${root}web/manifest.webmanifest`, "utf8"));
  const handled = manifest.file_handlers.flatMap(({ accept }) => Object.values(accept).flat());
  const readme = readFileSync(`${root}README.md`, "utf8").match(/<!-- formats[^]*?<!-- \/formats -->/)[0];
  const rows = readme.split("\n").filter((line) => line.startsWith("|")).slice(2);
  const named = rows.flatMap((row) => [...row.split("|")[2].matchAll(/`(\.[^`]+)`/g)].map((match) => match[1]));
  // Desktops look only at the last extension of a name; `.json` is too general to claim.
  const ends = named.map((end) => end.slice(end.lastIndexOf("."))).filter((end) => end !== ".json");
  assert.deepEqual([...new Set(handled)].sort(), [...new Set(ends)].sort());
  assert.equal(new Set(handled).size, handled.length);
});

test("files are remembered only on request, and forgotten otherwise", async () => {
  await withPage(browser, async (page) => {
    const pick = (names) =>
      page.evaluate((names) => {
        globalThis.showOpenFilePicker = async () => names.map((name) => globalThis.handles[name]);
      }, names);
    const rows = () => page.$$eval(".ex .m", (cells) => cells.map((cell) => cell.textContent));
    const start = async () => {
      await page.reload();
      await page.waitForSelector("#start .ex");
    };
    const stored = () =>
      page.evaluate(async () => {
        if (!(await indexedDB.databases()).some(({ name }) => name === "statelens")) return 0;
        const open = indexedDB.open("statelens");
        await new Promise((resolve) => (open.onsuccess = resolve));
        const all = open.result.transaction("recent").objectStore("recent").getAll();
        await new Promise((resolve) => (all.onsuccess = resolve));
        open.result.close();
        return all.result.length;
      });
    const box = page.locator(".keep input");
    // Off by default: opened files are not stored.
    assert.equal(await box.isChecked(), false);
    await handle(page, seed);
    await page.setInputFiles("#choose-files", { name: "seed.mdl", mimeType: "", buffer: seed.bytes });
    await opened(page, "seed.mdl");
    assert.equal(await stored(), 0);
    // On: handles from the dialog are stored.
    await start();
    await box.check();
    await handle(page, seed);
    await handle(page, dropped("cerebras/v2.10.0/seed.pt"));
    await pick(["seed.mdl"]);
    await page.getByRole("button", { name: "Open files" }).first().click();
    await opened(page, "seed.mdl");
    await pick(["seed.pt", "seed.mdl"]);
    await page.keyboard.press("o");
    await opened(page, "seed.pt");
    await page.waitForFunction(() => globalThis.files.list().then((list) => list.length === 2));
    // A cancelled dialog changes nothing.
    await page.evaluate(() => (globalThis.showOpenFilePicker = () => Promise.reject(new DOMException("left", "AbortError"))));
    await page.keyboard.press("o");
    // The next session lists them, the latest first; a click opens them.
    await start();
    await page.waitForSelector('[data-list="recent"]');
    assert.deepEqual(await rows(), ["seed.pt", "seed.mdl"]);
    assert.match(await page.textContent(".ex"), /and 1 more/);
    await page.click('.ex[data-name="seed.mdl"]');
    await opened(page, "seed.mdl");
    // A file that is opened again moves to the top.
    await page.waitForFunction(() => globalThis.files.list().then(([latest]) => latest.name === "seed.mdl"));
    await start();
    await page.waitForSelector('.exhead + .ex[data-name="seed.mdl"]');
    assert.equal(await stored(), 2);
    // A removed file is reported.
    await page.evaluate(async () => (await navigator.storage.getDirectory()).removeEntry("seed.mdl"));
    await page.click('.ex[data-name="seed.mdl"]');
    await page.waitForFunction(() => /could not be opened again/.test(document.body.innerText));
    // Off: all are removed.
    await start();
    await box.uncheck();
    await page.waitForSelector('[data-list="examples"]');
    assert.equal(await stored(), 0);
    await start();
    assert.equal(await box.isChecked(), false);
  });
});
