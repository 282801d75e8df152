// Jobs in progress when others start or another file is opened: no job reads another file, none is lost without a notice,
// and each gives the same result as alone.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { root, site } from "./harness.mjs";
import { LONG, browser, folder, isWritten, jobs, planned, open, run, same, saved, slowTab, tab } from "./jobs.mjs";
import { denseCheckpoint } from "./make.mjs";

/**
 * Two files of 64 and 72 MB, which take seconds in a page that reads slowly.
 */
let made;
function files() {
  made ??= Object.fromEntries(
    ["a", "b"].map((name, at) => {
      const path = join(folder, `${name}.safetensors`);
      denseCheckpoint(path, 8 + at, 1 + 999 * at);
      return [name, path];
    }),
  );
  return made;
}

/** Runs `work` in a page whose worker takes 60 ms for each MB of a file. */
const slowed = (work) => slowTab({ streams: [60] }, work);

/** Requests that the page answers at once; each returns the displayed result. */
const requests = {
  values: async (page) => {
    await page.keyboard.press("End");
    await page.waitForSelector(".insp table.vals");
    return (await page.locator(".insp .path, .insp table.vals").allTextContents()).join();
  },
  plan: async (page) => {
    await planned(page);
    const text = await page.textContent(".plan");
    await page.keyboard.press("Escape");
    return text;
  },
  share: async (page) => {
    await page.keyboard.press("s");
    const text = await page.locator(".sheet.sharing .cmd code").first().textContent();
    await page.keyboard.press("Escape");
    return text;
  },
};

let alone;
function expected(job) {
  const given = files();
  alone ??= {};
  return (alone[job] ??= jobs[job].expected(given));
}

test("a conversion that outlasts a scan writes its own file, whatever is dropped", async () => {
  const { a, b } = files();
  const wanted = await expected("write");
  // Several workers share the values, and one writes.
  await slowTab({ streams: [150, 400] }, async (page) => {
    await open(page, a);
    await jobs.write.prepare(page);
    await jobs.verify.begin(page);
    // Waits until most of the first job is complete, so that it ends first.
    await page.keyboard.press("s");
    await page.waitForFunction(() => Number(document.querySelector("[aria-label='Reading everything']")?.ariaValueNow) >= 60, null, { timeout: LONG });
    await page.keyboard.press("Escape");
    await jobs.write.begin(page);
    await page.keyboard.press("s");
    await page.locator('#share-statistics[data-state="read"]').waitFor({ timeout: LONG });
    await page.keyboard.press("Escape");
    assert.ok(await jobs.write.isRunning(page), "it was written before the values were read");
    await page.setInputFiles("#choose-files", b);
    // The page asks before it stops the write.
    const requested = page.waitForSelector("#stop").then(() => "asked");
    const replaced = page.locator(`#work[data-name*="${basename(b)}"]`).waitFor({ timeout: LONG }).then(() => "opened");
    if ((await Promise.race([requested, replaced])) === "opened") {
      const written = await jobs.write.end(page).catch(() => assert.fail("it ended without a notice"));
      same("written under the name of the first", written, wanted);
      assert.fail("the other was opened without a question");
    }
    await page.click("#keep-writing");
    same("written", await jobs.write.end(page), wanted);
    assert.match(await page.textContent("#work .top .name"), new RegExp(basename(a)));
  });
});

for (const job of ["scan", "verify", "write"]) {
  test(`requests during ${job} are answered, and do not affect it`, async () => {
    const given = files();
    await slowed(async (page) => {
      await open(page, given.a);
      const answers = {};
      for (const [name, request] of Object.entries(requests)) answers[name] = await request(page);
      await page.keyboard.press("Home");
      await jobs[job].prepare?.(page);
      await jobs[job].begin(page, given);
      for (const [name, request] of Object.entries(requests)) {
        // During a write, the convert sheet shows its progress instead of the plan.
        if (job === "write" && name === "plan") continue;
        assert.equal(await request(page), answers[name], name);
      }
      same(job, await jobs[job].end(page), await expected(job));
    });
  });
}

test("stopping one job does not affect another", async () => {
  const given = files();
  await slowed(async (page) => {
    await open(page, given.a);
    await jobs.write.prepare(page);
    await jobs.write.begin(page);
    await jobs.verify.begin(page);
    await page.keyboard.press("v");
    await page.click("#cancel");
    await page.waitForSelector("#verify-form");
    await page.keyboard.press("Escape");
    same("write", await jobs.write.end(page), await expected("write"));
    // A stopped job can be restarted, and completes.
    await page.keyboard.press("Escape");
    await jobs.verify.begin(page);
    same("verify", await jobs.verify.end(page), await expected("verify"));
  });
});

for (const [job, words] of [
  ["scan", /Scanning the values of a\.safetensors was stopped because another file was opened/],
  ["verify", /Reading all of a\.safetensors was stopped because another file was opened/],
  ["write", /Writing a\.pt was stopped because another file was opened\. The partial output is removed/],
]) {
  test(`opening another file stops ${job} with a notice, and opens completely`, async () => {
    const { a, b } = files();
    await slowed(async (page) => {
      const downloads = [];
      page.on("download", (download) => downloads.push(download.suggestedFilename()));
      await open(page, a);
      await jobs[job].prepare?.(page);
      await jobs[job].begin(page, { a, b });
      await page.setInputFiles("#choose-files", b);
      if (job === "write") await page.click("#stop-and-open");
      await page.locator(`#work[data-name*="${basename(b)}"]`).waitFor();
      assert.match(await page.textContent("#notice"), words);
      // The stopped job sends no results, and does not block others.
      await jobs.verify.begin(page);
      same("verify", await jobs.verify.end(page), run("verify", b, "--json"));
      assert.deepEqual(downloads.filter((name) => name.endsWith(".pt")), []);
      assert.doesNotMatch(await page.textContent(".status"), /writing/);
      await page.getByRole("button", { name: "OK" }).click();
      assert.equal(await page.$("#notice"), null);
    });
  });
}

/** Returns the names of the files in the browser's private file system. */
const kept = (page) =>
  page.evaluate(async () => {
    const top = await navigator.storage.getDirectory();
    const names = [];
    for await (const [name, handle] of top) {
      if (handle.kind === "directory") for await (const inside of handle.keys()) names.push(`${name}/${inside}`);
    }
    return names;
  });

/** Plans compressed output, which is written through the private file system. */
async function planCompressed(page, file) {
  await open(page, file);
  await page.keyboard.press("c");
  for (const choice of ["Cerebras", "LZ4"]) await page.getByRole("radio", { name: choice }).first().click();
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

test("a second tab keeps the first one's finished files, and a later tab removes them", async () => {
  const file = `${root}tests/fixtures/torch/zip_training_ckpt.pt`;
  const context = await browser.newContext({ acceptDownloads: true });
  await context.addInitScript(() => delete window.showSaveFilePicker);
  const tabs = async () => {
    const page = await context.newPage();
    await page.goto(site);
    await page.waitForSelector("#start");
    return page;
  };
  const first = await tabs();
  await planCompressed(first, file);
  await saved(first, () => first.click("#write"), isWritten);
  await first.waitForSelector("#convert-done");
  assert.equal((await kept(first)).length, 1);
  const second = await tabs();
  await open(second, file);
  await second.waitForTimeout(1000);
  assert.equal((await kept(first)).length, 1, "the second tab removed it");
  // The result can be opened, and read completely.
  await first.click("#open-result");
  await first.waitForFunction(() => document.title.includes(".mdl"));
  await first.keyboard.press("v");
  await first.click("#verify-begin");
  await first.waitForSelector("#verify-done");
  await first.close();
  const third = await tabs();
  await third.waitForFunction(async () => {
    const top = await navigator.storage.getDirectory();
    const folder = await top.getDirectoryHandle("statelens", { create: true });
    for await (const _ of folder.keys()) return false;
    return true;
  });
  await context.close();
});

test("a stopped write leaves nothing in the private file system", async () => {
  const { a } = files();
  await slowed(async (page) => {
    await planCompressed(page, a);
    await page.click("#write");
    await page.waitForSelector("#convert-run");
    await page.getByRole("button", { name: "Browse meanwhile" }).click();
    await page.waitForFunction(() => /writing [1-9]/.test(document.querySelector(".status").textContent), null, { timeout: LONG });
    assert.equal((await kept(page)).length, 1);
    await page.setInputFiles("#choose-files", `${root}tests/fixtures/torch/zip_training_ckpt.pt`);
    await page.click("#stop-and-open");
    await page.waitForFunction(() => document.title.startsWith("zip_training_ckpt.pt"));
    await page.waitForFunction(async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("statelens");
      for await (const _ of folder.keys()) return false;
      return true;
    });
  });
});

test("leaving the page asks only while a file is written", async () => {
  const { a } = files();
  await slowed(async (page) => {
    const requested = [];
    page.on("dialog", async (dialog) => {
      requested.push(dialog.type());
      await dialog.dismiss();
    });
    await open(page, a);
    await jobs.write.prepare(page);
    await jobs.write.begin(page);
    await page.close({ runBeforeUnload: true });
    await page.waitForTimeout(500);
    assert.deepEqual(requested, ["beforeunload"]);
    same("write", await jobs.write.end(page), await expected("write"));
    await page.waitForFunction(() => !/writing/.test(document.querySelector(".status").textContent));
    await page.close({ runBeforeUnload: true });
    await page.waitForEvent("close", { timeout: 5000 }).catch(() => {});
    assert.ok(page.isClosed());
    assert.equal(requested.length, 1);
  });
});

test("a folder of 3,000 files is searched by reading little of each", async () => {
  const many = join(folder, "many");
  mkdirSync(many);
  // Sparse files of 300 kB each.
  for (let at = 0; at < 3000; at++) {
    const path = join(many, `part_${at}.dat`);
    writeFileSync(path, "no checkpoint ");
    truncateSync(path, 300_000);
  }
  writeFileSync(join(many, "model.pt"), readFileSync(`${root}tests/fixtures/torch/zip_training_ckpt.pt`));
  await tab(async (page) => {
    const began = Date.now();
    await page.setInputFiles("#choose-folder", many);
    await page.locator('#work[data-name*="model.pt"]').waitFor({ timeout: LONG });
    const status = await page.textContent(".status");
    console.log(`# 3,001 files: ${Date.now() - began} ms, ${status}`);
    const [, number, unit] = /examined 3,001 files \(([\d.]+) (kB|MB|GB)\)/.exec(status) ?? [];
    const bytes = Number(number) * { kB: 1e3, MB: 1e6, GB: 1e9 }[unit];
    // 20 kB at the beginning and at the end, where some formats have their magic number.
    assert.ok(bytes < 3001 * 41_000, `${status}: more than 41 kB of each`);
    // The bytes read of the checkpoint do not include the search.
    assert.match(status, /read all of \d+(\.\d+)? kB/);
  });
});
