// The start: how soon something is drawn and answers, how the Wasm is compiled, and that nothing jumps.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, site, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** Watches a page from before its first script on. */
function watch() {
  const seen = { shift: 0, streamed: 0, compiled: 0, stood: 0 };
  globalThis.seen = seen;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) seen.shift += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  const { compileStreaming, compile } = WebAssembly;
  WebAssembly.compileStreaming = async (...given) => {
    const module = await compileStreaming.apply(WebAssembly, given);
    seen.streamed += 1;
    return module;
  };
  WebAssembly.compile = (...given) => {
    seen.compiled += 1;
    return compile.apply(WebAssembly, given);
  };
  new MutationObserver(() => {
    // It answers when it stands and the thread is free again.
    if (!seen.stood && document.querySelector("#start")) requestAnimationFrame(() => setTimeout(() => (seen.stood ||= performance.now())));
  }).observe(document, { childList: true, subtree: true });
}

/** Loads the page and tells what was seen of it. */
async function load(page) {
  await page.goto(site);
  await page.waitForSelector("#start");
  await page.waitForFunction(() => globalThis.seen.stood && performance.getEntriesByName("first-contentful-paint").length);
  return page.evaluate(() => ({ ...globalThis.seen, paint: performance.getEntriesByName("first-contentful-paint")[0].startTime }));
}

test("its Wasm is compiled as it comes", async (context) => {
  const seen = [];
  for (let run = 0; run < 5; run += 1) {
    // A first visit each time: nothing is in a cache.
    const fresh = await browser.newContext();
    const page = await fresh.newPage();
    await page.addInitScript(watch);
    seen.push(await load(page));
    await fresh.close();
  }
  const middle = (name) => seen.map((one) => one[name]).sort((a, b) => a - b)[2];
  context.diagnostic(`first paint ${middle("paint").toFixed(0)} ms (aim: 500), answers after ${middle("stood").toFixed(0)} ms (aim: 1000)`);
  for (const { streamed, compiled } of seen) {
    assert.ok(compiled === 0 && streamed === 1, `${streamed} streamed, ${compiled} compiled at once`);
  }
});

test("nothing jumps, from the start to a checkpoint that is open", async () => {
  await withPage(browser, async (page) => {
    await page.addInitScript(watch);
    assert.equal((await load(page)).shift, 0, "at the start");
    // The observer does see what jumps.
    await page.evaluate(() => document.querySelector("#start h1").before(Object.assign(document.createElement("p"), { textContent: "x", style: "height: 80px" })));
    await page.waitForFunction(() => globalThis.seen.shift > 0);
    await load(page);
    await page.click('.ex:has-text("gpt_small.mdl")');
    await page.waitForSelector("#work .row");
    await page.waitForTimeout(700);
    assert.equal(await page.evaluate(() => globalThis.seen.shift), 0, "while a checkpoint opens");
  });
});

test("over a whole session nothing is asked for but the site's own files, each of them once", async () => {
  await withPage(browser, async (page) => {
    const asked = [];
    page.context().on("request", (request) => asked.push(request.url()));
    await page.reload();
    await page.waitForSelector("#start");
    await page.click('.ex:has-text("gpt_small.mdl")');
    await page.waitForSelector("#work .row");
    await page.click(".row:not(.grp)");
    await page.waitForSelector(".insp .facts");
    await page.fill("#filter", "bias");
    await page.keyboard.press("Escape");
    await page.keyboard.press("f");
    await page.waitForSelector("[role=dialog]");
    await page.keyboard.press("Escape");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.keyboard.press("Escape");
    const wasm = asked.filter((url) => url.endsWith("_bg.wasm"));
    assert.ok(wasm.length >= 1 && wasm.length <= 2, `the Wasm is fetched once, by its preload: ${wasm}`);
    for (const url of asked) assert.ok(url.startsWith(site) || url.startsWith(`blob:${site}`), url);
  });
});
