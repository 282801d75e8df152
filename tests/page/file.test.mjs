// statelens.html: the whole page in one file, opened from disk.

import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, before, test } from "node:test";
import { drop, dropped, fixture, launch } from "./harness.mjs";
import { readFileSync } from "node:fs";
import { denseCheckpoint } from "./make.mjs";

const single = process.env.STATELENS_SINGLE;
if (!single) throw new Error("STATELENS_SINGLE is not set; run the page's tests with `cargo xtask test-page`");

let browser;
let folder;
let page;
before(async () => {
  browser = await launch();
  // The file is alone in its folder, so it can't use other files.
  folder = mkdtempSync(join(tmpdir(), "statelens file "));
  page = join(folder, "statelens #1.html");
  copyFileSync(single, page);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Opens the file from disk; fails on errors and on requests for anything else. */
async function visit(work, address = pathToFileURL(page).href) {
  const context = await browser.newContext({ acceptDownloads: true });
  const problems = [];
  context.on("weberror", (event) => problems.push(String(event.error())));
  context.on("request", (request) => {
    const url = request.url();
    if (url.split("#")[0].split("?")[0] !== address.split("?")[0] && !/^(blob|data):/.test(url)) problems.push(url);
  });
  context.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  try {
    const tab = await context.newPage();
    await tab.goto(address);
    await tab.waitForSelector("#start");
    await work(tab);
  } finally {
    await context.close();
  }
  assert.deepEqual(problems, []);
}

test("contains the model families", async () => {
  const folder = fixture("recipes/llama/inv_freq_bin_2shards.hf-to-cs2.9/in");
  await visit(async (tab) => {
    await drop(tab, "body", readdirSync(folder).map((name) => ({ name, bytes: readFileSync(join(folder, name)) })));
    await tab.waitForSelector("#work .row");
    await tab.keyboard.press("c");
    await tab.locator(".famtargets").getByRole("radio", { name: "Cerebras 2.9" }).first().click();
    await tab.waitForSelector("#loads .w-good");
  });
});

test("opens from disk, and opens dropped files (core)", async () => {
  console.log(`# ${statSync(single).size} bytes`);
  await visit(async (tab) => {
    assert.match(tab.url(), /^file:/);
    await drop(tab, "body", [dropped("cerebras/v2.10.0/gpt_small.mdl")]);
    await tab.waitForSelector("#work .row");
    await tab.click('.row:has([title="model.model.blocks.0–1.qkv.weight"])');
    await tab.waitForSelector(".insp .vals td");
    await tab.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/seed.pt"));
    await tab.waitForFunction(() => document.title.startsWith("seed.pt"));
    await tab.waitForSelector("#work .row");
  });
});

test("divides a long pass among workers", async () => {
  const large = mkdtempSync(join(tmpdir(), "statelens-large-"));
  try {
    const path = join(large, "dense.safetensors");
    denseCheckpoint(path, 10, 1);
    await visit(async (tab) => {
      await tab.setInputFiles("#choose-files", path);
      await tab.waitForSelector("#work .row");
      let started = 0;
      tab.on("worker", () => (started += 1));
      await tab.click("#scan");
      await tab.waitForSelector("#scanned");
      const cores = await tab.evaluate(() => navigator.hardwareConcurrency);
      assert.equal(started > 1, cores > 1, `${started} workers on ${cores} cores`);
    });
  } finally {
    rmSync(large, { recursive: true });
  }
});

test("contains the examples", async () => {
  await visit(async (tab) => {
    for (const name of ["gpt_small.mdl", "zip_training_ckpt.pt", "builtins_eval.pt"]) {
      await tab.click(`.ex[data-name="${name}"]`);
      await tab.waitForFunction((name) => document.title.startsWith(name), name);
      await tab.waitForSelector("#work .row");
      await tab.reload();
      await tab.waitForSelector("#start");
    }
  });
});

test("converts a checkpoint", async () => {
  await visit(async (tab) => {
    await drop(tab, "body", [dropped("cerebras/v2.10.0/seed.mdl")]);
    await tab.waitForSelector("#work .row");
    await tab.keyboard.press("c");
    await tab.waitForSelector("#write");
    for (const box of await tab.$$(".plan:not(.late) .loss input")) await box.check();
    const [download] = await Promise.all([tab.waitForEvent("download"), tab.click("#write:not([disabled])")]);
    const path = await download.path();
    assert.ok(statSync(path).size > 100);
    await tab.waitForFunction(() => /written|saved|equal/i.test(document.querySelector(".sheet").innerText));
  });
});

test("remembers files only on request, as a hosted page does", async () => {
  await visit(async (tab) => {
    assert.equal(await tab.locator(".keep input").isChecked(), false);
    assert.equal(await tab.evaluate(() => navigator.serviceWorker?.controller ?? null), null);
  });
});

test("its policy allows only its own scripts", async () => {
  const text = readFileSync(single, "utf8");
  assert.ok(!/<(link|script|img)[^>]+(href|src)="(?!data:)/.test(text.slice(0, text.indexOf("<style>"))), "it refers to no other file");
  const context = await browser.newContext();
  const tab = await context.newPage();
  await tab.goto(pathToFileURL(page).href);
  await tab.waitForSelector("#start");
  const refused = await tab.evaluate(async () => {
    const requested = [];
    document.addEventListener("securitypolicyviolation", (event) => requested.push(event.effectiveDirective));
    document.head.append(Object.assign(document.createElement("script"), { textContent: "globalThis.ran = true" }));
    document.head.append(Object.assign(document.createElement("style"), { textContent: "body { display: none }" }));
    await fetch("file:///etc/passwd").catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 100));
    return { requested: [...new Set(requested)].sort(), ran: globalThis.ran, shown: getComputedStyle(document.body).display };
  });
  assert.equal(refused.ran, undefined);
  assert.notEqual(refused.shown, "none");
  assert.deepEqual(refused.requested, ["connect-src", "script-src-elem", "style-src-elem"]);
  await context.close();
});

test("opens a remote checkpoint that allows it, after confirmation", async () => {
  const bytes = readFileSync(fixture("cerebras/v2.10.0/seed.mdl"));
  const server = createServer((request, response) => {
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Allow-Headers", "*");
    response.setHeader("Access-Control-Expose-Headers", "*");
    const range = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "");
    if (request.method === "OPTIONS") return response.writeHead(204).end();
    if (!range) return response.writeHead(200, { "Content-Length": bytes.length }).end(bytes);
    const [first, last] = [Number(range[1]), Math.min(Number(range[2]), bytes.length - 1)];
    return response.writeHead(206, { "Content-Range": `bytes ${first}-${last}/${bytes.length}` }).end(bytes.subarray(first, last + 1));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const context = await browser.newContext();
  try {
    const tab = await context.newPage();
    await tab.goto(`${pathToFileURL(page).href}?url=http://127.0.0.1:${server.address().port}/seed.mdl`);
    await tab.waitForSelector("#address");
    await tab.click("#address-open");
    await tab.waitForSelector("#work .row");
  } finally {
    await context.close();
    server.close();
  }
});
