// Long passes over files on disk are shared by several workers. The results are those of the command.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, command, inWorker, launch, withPage, withSlowPage } from "./harness.mjs";
import { denseCheckpoint, sparseCheckpoint } from "./make.mjs";

let browser;
let folder;
let first;
let second;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "statelens-assistants-"));
  [first, second] = ["first", "second"].map((name) => join(folder, `${name}.safetensors`));
  denseCheckpoint(first, 16, 1);
  denseCheckpoint(second, 16, 2);
  // The last value is NaN.
  const file = openSync(second, "r+");
  writeSync(file, Buffer.from([0, 0, 0xc0, 0x7f]), 0, 4, statSync(second).size - 4);
  closeSync(file);
  browser = await launch();
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

const run = (...args) => execFileSync(command, args, { encoding: "utf8", maxBuffer: 1 << 26 });

/** Returns the number of workers that a page has started. */
async function workers(page) {
  const client = await page.context().browser().newBrowserCDPSession();
  const { targetInfos } = await client.send("Target.getTargets", { filter: [{ type: "worker", exclude: false }] });
  await client.detach();
  return targetInfos.length;
}

/** Returns the largest number of workers while `work` is done. */
async function most(page, work) {
  let found = 0;
  let going = true;
  const watch = (async () => {
    while (going) {
      found = Math.max(found, await workers(page));
      await new Promise((done) => setTimeout(done, 20));
    }
  })();
  await work();
  going = false;
  await watch;
  return found;
}

/** Sends the kinds of an assistant's replies to the page, too. Runs in the worker. */
function copyReplies() {
  if (globalThis.name !== "assistant") return;
  const channel = new BroadcastChannel("replies");
  const post = globalThis.postMessage.bind(globalThis);
  globalThis.postMessage = (envelope, ...rest) => {
    const { message } = envelope;
    channel.postMessage(typeof message === "string" ? message : Object.keys(message)[0]);
    post(envelope, ...rest);
  };
}

/** Collects the kinds of the assistants' replies from now on. */
async function collectReplies(page) {
  await inWorker(page, copyReplies);
  await page.evaluate(() => {
    globalThis.replies = [];
    globalThis.channel = new BroadcastChannel("replies");
    globalThis.channel.onmessage = ({ data }) => globalThis.replies.push(data);
  });
}

/** Checks that assistants processed all parts of a pass, if the machine has several cores. */
async function haveProcessed(page) {
  const [replies, cores] = await page.evaluate(() => [globalThis.replies, navigator.hardwareConcurrency]);
  const count = (kind) => replies.filter((reply) => reply === kind).length;
  assert.equal(count("Failed"), 0);
  assert.equal(count("Parts") > 1, cores > 1, replies.join(" "));
}

async function saved(page, act) {
  const [download] = await Promise.all([page.waitForEvent("download"), act()]);
  return readFileSync(await download.path(), "utf8");
}

test("values and hashes are those of the command", async () => {
  await withPage(browser, async (page) => {
    await collectReplies(page);
    await page.setInputFiles("#choose-files", second);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("s");
    await page.waitForSelector("#read-all");
    const expected = run("summary", second, "--to", "json", "--stats");
    const started = await most(page, async () => {
      await page.click("#read-all");
      await page.getByText(JSON.parse(expected).fingerprints.content.short).waitFor();
    });
    const json = await saved(page, () => page.getByRole("button", { name: /^JSON/ }).click());
    assert.equal(json, expected);
    const cores = await page.evaluate(() => navigator.hardwareConcurrency);
    assert.equal(started > 1, cores > 1, `${started} workers on ${cores} cores`);
    assert.equal(await workers(page), 1, "assistants end with the pass");
    await haveProcessed(page);
  });
});

test("a comparison is that of the command", async () => {
  await withPage(browser, async (page) => {
    await collectReplies(page);
    await page.setInputFiles("#choose-files", first);
    await page.waitForSelector("#work .row");
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(second);
    await page.waitForSelector("#save-report:not([disabled])");
    const json = await saved(page, () => page.click("#save-report"));
    let expected;
    try {
      expected = run("diff", first, second, "--json");
    } catch (differs) {
      expected = differs.stdout;
    }
    assert.deepEqual(JSON.parse(json), JSON.parse(expected));
    await haveProcessed(page);
  });
});

test("progress is shown before the first large tensor is read", async () => {
  const large = join(folder, "large.pt");
  sparseCheckpoint(large, 4, 250_000_000);
  await withPage(browser, async (page) => {
    await collectReplies(page);
    await page.setInputFiles("#choose-files", large);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("v");
    await page.click("#verify-begin");
    const shown = await page.waitForFunction(() => {
      const percent = Number(document.querySelector("#verify-run [role=progressbar]")?.ariaValueNow);
      return percent > 0 && { percent, replies: globalThis.replies };
    });
    const { percent, replies } = await shown.jsonValue();
    assert.ok(percent < 25, `${percent} %`);
    assert.equal(replies.includes("Parts"), false, replies.join(" "));
    await page.click("#cancel");
    await page.waitForSelector("#verify-form");
  });
});

test("a scan that is stopped keeps what was read, and can go on", async () => {
  // Slow enough to be stopped on a busy machine.
  await withSlowPage(browser, { streams: [400] }, async (page) => {
    await page.setInputFiles("#choose-files", second);
    await page.waitForSelector("#work .row");
    await page.click("#scan");
    await page.click("#scan-stop");
    await page.waitForSelector("#scanned");
    assert.match(await page.textContent("#scanned"), /stopped after/);
    assert.equal(await workers(page), 1);
    await page.click("#scan");
    await page.waitForFunction(() => document.querySelector("#scanned")?.textContent.includes("scanned"));
    assert.match(await page.textContent("#work"), /1 NaN/);
  });
});
