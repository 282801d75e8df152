// The page starts, and the harness sees what it must see.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, site, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

test("the page starts and draws its first screen", async () => {
  await withPage(browser, async (page) => {
    assert.equal(await page.title(), "Statelens");
    await page.waitForFunction(() => document.body.innerText.trim().length > 0);
  });
});

test("its Wasm comes with the type that browsers compile while it downloads", async () => {
  await withPage(browser, async (page) => {
    const types = await page.evaluate(async () => {
      const addresses = performance.getEntriesByType("resource").map((entry) => entry.name);
      const wasm = addresses.filter((address) => address.endsWith(".wasm"));
      return Promise.all(wasm.map(async (address) => (await fetch(address)).headers.get("content-type")));
    });
    assert.ok(types.length > 0, "the page loads Wasm");
    assert.ok(types.every((type) => type === "application/wasm"), types.join());
  });
});

test("the content security policy refuses to send anything elsewhere", async () => {
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
