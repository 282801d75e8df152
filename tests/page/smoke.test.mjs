// The page starts, and the harness detects what it has to detect.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessibility, choosing, fixture, launch, site, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("the page starts and draws its first screen (core)", async () => {
  const starts = async (page) => {
    assert.equal(await page.title(), "Statelens");
    await page.waitForFunction(() => document.body.innerText.trim().length > 0);
  };
  await withPage(browser, starts, { serviceWorkers: "allow" });
});

test("the program is fetched once, and compiled while it downloads", async () => {
  await withPage(browser, async (page) => {
    const wasm = await page.evaluate(() => performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => name.endsWith(".wasm")));
    assert.equal(new Set(wasm).size, 1, `${wasm}`);
    const type = await page.evaluate(async (address) => (await fetch(address)).headers.get("content-type"), wasm[0]);
    assert.equal(type, "application/wasm");
  });
});

test("a checkpoint opens, its values are read, and it converts (core)", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", fixture("torch/zip_training_ckpt.pt"));
    await page.waitForSelector("#work .row");
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    const rows = await page.locator("#work .row").allTextContents();
    assert.ok(rows.length > 3 && rows.some((row) => /\d/.test(row)), `${rows}`);
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
    await page.waitForSelector("#write:not([disabled])");
  });
});

test("what plans and writes is loaded once, when it is first needed", async () => {
  await withPage(browser, async (page) => {
    const requested = [];
    page.context().on("request", (request) => requested.push(request.url()));
    const rest = await page.evaluate(() => document.querySelector("script[data-wasm]").dataset.rest);
    const loaded = () => requested.filter((url) => url.endsWith("_rest.wasm")).length;
    await page.setInputFiles("#choose-files", fixture("torch/zip_training_ckpt.pt"));
    await page.waitForSelector("#work .row");
    await page.click(".row:not(.grp)");
    await page.waitForSelector(".insp .facts");
    await page.keyboard.press("Escape");
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    assert.equal(loaded(), 0, "opening, inspecting and reading do without it");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
    await page.click("#write:not([disabled])");
    await page.waitForSelector("#convert-done");
    await page.keyboard.press("Escape");
    await page.keyboard.press("v");
    await page.click("#verify-begin");
    await page.waitForSelector("#verify-done");
    // Only the small page is in two parts.
    assert.equal(loaded(), rest ? 1 : 0);
  });
});

test("a part that can't be loaded is reported, and the file can be opened again", async () => {
  await withPage(browser, async (page) => {
    if (!(await page.evaluate(() => document.querySelector("script[data-wasm]").dataset.rest))) return;
    await page.context().route("**/*_rest.wasm", (route) => route.abort());
    await page.setInputFiles("#choose-files", fixture("torch/zip_training_ckpt.pt"));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.getByText("A part of Statelens could not be loaded.").first().waitFor();
    await page.getByText("Check the connection").first().waitFor();
    await page.context().unroute("**/*_rest.wasm");
    const chooser = await choosing(page, () => page.getByRole("button", { name: "Open…" }).click());
    await chooser.setFiles(fixture("torch/zip_training_ckpt.pt"));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
  });
});

/** Simulates a browser without SIMD, which finds a program with vectors invalid. Runs in the page. */
function withoutSimd() {
  WebAssembly.validate = () => false;
}

test("a browser without SIMD gets a message with advice", async () => {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.addInitScript(withoutSimd);
    await page.goto(site);
    const notice = page.getByRole("alert");
    await notice.waitFor();
    assert.match(await notice.textContent(), /does not support WebAssembly SIMD.*Update it, or use/);
    assert.deepEqual(await accessibility(page, "browser without SIMD"), []);
    assert.equal(await page.$("#start"), null);
  } finally {
    await context.close();
  }
});

/** Opens the page in a context of its own, prepared by `prepare(page)`, which answers requests. */
async function starting(prepare, work) {
  const context = await browser.newContext({ serviceWorkers: "block" });
  try {
    const page = await context.newPage();
    await prepare(page);
    await page.goto(site, { waitUntil: "commit" });
    await work(page);
  } finally {
    await context.close();
  }
}

test("the page says that it is loading until the program is there", async () => {
  let answer;
  const arrives = new Promise((resolve) => (answer = resolve));
  const held = (page) => page.route("**/*.wasm", (route) => arrives.then(() => route.continue()));
  await starting(held, async (page) => {
    await page.getByRole("status").waitFor();
    assert.deepEqual(await accessibility(page, "starting"), []);
    answer();
    await page.waitForSelector("#start");
    assert.equal(await page.locator(".starting").count(), 0);
  });
});

for (const [what, prepare] of [
  ["its program is blocked", (page) => page.route("**/*.wasm", (route) => route.abort())],
  ["the server lacks its program", (page) => page.route("**/*.wasm", (route) => route.fulfill({ status: 404 }))],
  ["its script is blocked", (page) => page.route(/statelens-app[^/]*\.js$/, (route) => route.abort())],
  ["WebAssembly is turned off", (page) => page.addInitScript(() => delete globalThis.WebAssembly)],
]) {
  test(`the page says so if ${what}, and can be loaded again`, () =>
    starting(prepare, async (page) => {
      await page.getByRole("alert").waitFor();
      assert.deepEqual(await accessibility(page, what), []);
      assert.equal(await page.locator(".starting").count(), 0);
      await page.unrouteAll();
      await page.getByRole("button", { name: "Reload" }).click();
      await page.waitForSelector(what.startsWith("WebAssembly") ? "[role=alert]" : "#start");
    }));
}

test("the content security policy blocks requests to other sites (core)", async () => {
  await withPage(browser, async (page) => {
    const violation = await page.evaluate(
      () =>
        new Promise((resolve) => {
          document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
          fetch("https://example.invalid/").then(() => resolve("sent"), () => {});
        }),
    );
    assert.equal(violation, "connect-src");
  }).then(
    () => assert.fail("the console error of the refusal must be seen"),
    // The browser prints an error for the violation, so this also shows that `withPage` fails on errors.
    (error) => assert.match(error.message, /errors in the page/),
  );
});

test("requests to other sites are detected, from page and worker", async () => {
  // Without the policy, which would block the request.
  const work = withPage(
    browser,
    (page) => page.evaluate((address) => fetch(address).catch(() => {}), new URL("x", site.replace("127.0.0.1", "127.0.0.2")).href),
    { bypassCSP: true },
  );
  await assert.rejects(work, /requests beyond the site's own files/);
});
