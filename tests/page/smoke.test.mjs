// The page starts, and the harness sees what it must see.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fixture, launch, site, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("the page starts and draws its first screen (core)", async () => {
  await withPage(browser, async (page) => {
    assert.equal(await page.title(), "Statelens");
    await page.waitForFunction(() => document.body.innerText.trim().length > 0);
  });
});

test("its Wasm comes packed, as the page unpacks it while it downloads", async () => {
  await withPage(browser, async (page) => {
    const starts = await page.evaluate(async () => {
      const addresses = performance.getEntriesByType("resource").map((entry) => entry.name);
      const wasm = addresses.filter((address) => /\.wasm(\.xz)?$/.test(address));
      return Promise.all(wasm.map(async (address) => [...new Uint8Array(await (await fetch(address)).arrayBuffer()).slice(0, 6)]));
    });
    assert.ok(starts.length > 0, "the page loads Wasm");
    for (const start of starts) assert.deepEqual(start, [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00], "the six bytes that an xz file begins with");
  });
});

test("a browser without vectors takes the program without them, which finds the same", async () => {
  const scanned = async (page) => {
    await page.waitForSelector("#start");
    await page.setInputFiles("#choose-files", fixture("torch/zip_training_ckpt.pt"));
    await page.waitForSelector("#work .row");
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    const asked = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name, initiatorType }) => `${initiatorType} ${name}`));
    const rows = await page.locator("#work .row").allTextContents();
    return { plain: asked.filter((line) => line.includes("/plain/")), later: asked.filter((line) => line.includes("_later.")), rows };
  };
  let usual;
  await withPage(browser, async (page) => {
    usual = await scanned(page);
  });
  assert.deepEqual(usual.plain, []);
  assert.ok(usual.rows.length > 3 && usual.rows.some((row) => /\d/.test(row)));
  await withPage(browser, async (page) => {
    await page.addInitScript(() => (WebAssembly.validate = () => false));
    await page.reload();
    const without = await scanned(page);
    const quick = !(await page.getAttribute("script[data-wasm]", "data-plain-wasm"));
    // A quick page is one program, for all browsers.
    if (!quick) {
      assert.ok(without.plain.some((line) => line.endsWith("_bg.wasm.xz")) && without.plain.some((line) => line.endsWith(".js")), `${without.plain}`);
      assert.deepEqual(without.later, []);
    }
    assert.deepEqual(without.rows, usual.rows);
  });
});

test("the content security policy refuses to send anything elsewhere (core)", async () => {
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
    // The refusal is printed as an error, which `withPage` reports: so this also shows that it looks.
    (error) => assert.match(error.message, /errors in the page/),
  );
});

test("a request beyond the site is seen, whoever makes it", async () => {
  // Without the policy, which would stop the request before it is made.
  const work = withPage(
    browser,
    (page) => page.evaluate((address) => fetch(address).catch(() => {}), new URL("x", site.replace("127.0.0.1", "127.0.0.2")).href),
    { bypassCSP: true },
  );
  await assert.rejects(work, /requests beyond the site's own files/);
});
