// The page works below any path of any static host, and offline after the first visit.

import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { createHash } from "node:crypto";
import { drop, dropped, fixture, launch, root, site, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".svg": "image/svg+xml" };

/**
 * Starts a static host that sends only content types, with the site below `path`. It can go offline, and its files can be
  * changed. With `plain`, it does not know the type of Wasm.
 */
async function host(path, { plain = false } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "statelens-site-"));
  cpSync(join(root, "dist"), folder, { recursive: true });
  const requested = [];
  const server = createServer((request, response) => {
    const address = decodeURIComponent(request.url.split("?")[0]);
    requested.push(address);
    const name = address === path ? "index.html" : normalize(address.slice(path.length));
    const kind = plain && extname(name) === ".wasm" ? "application/octet-stream" : types[extname(name)];
    try {
      if (!address.startsWith(path) || name.startsWith("..")) throw new Error("outside");
      const bytes = readFileSync(join(folder, name));
      response.writeHead(200, kind ? { "Content-Type": kind } : {}).end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  const listen = (port) => new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  await listen(0);
  const { port } = server.address();
  return {
    folder,
    requested,
    address: `http://127.0.0.1:${port}${path}`,
    async off() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
    on: () => listen(port),
    async end() {
      server.closeAllConnections();
      server.close();
      rmSync(folder, { recursive: true });
    },
  };
}

/** Changes a file of a site and names it in the service worker, as a build does. */
function change(folder, file, edit) {
  const before = readFileSync(join(folder, file));
  const after = Buffer.from(edit(before.toString()));
  writeFileSync(join(folder, file), after);
  const hash = (bytes) => createHash("sha256").update(bytes).digest("base64");
  const script = readFileSync(join(folder, "sw.js"), "utf8");
  assert.ok(script.includes(hash(before)), `sw.js names ${file}: was the site finished by cargo xtask?`);
  const version = script.match(/const VERSION = "(\w+)"/)[1];
  const next = hash(after).replaceAll(/\W/g, "").slice(0, 16);
  writeFileSync(join(folder, "sw.js"), script.replace(hash(before), hash(after)).replace(version, next));
}

/** Runs `work(page)` in a context that fails on errors and on requests beyond `address`. */
async function visit(address, work) {
  const context = await browser.newContext();
  const problems = [];
  context.on("weberror", (event) => problems.push(String(event.error())));
  context.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(address) && !url.startsWith("blob:") && !url.startsWith("data:")) problems.push(url);
  });
  context.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  try {
    await work(await context.newPage(), context);
  } finally {
    await context.close();
  }
  assert.deepEqual(problems, []);
}

/** Waits until the whole site is cached. */
const waitForCache = (page) => page.evaluate(() => navigator.serviceWorker.ready.then(() => true));

/** Opens an example and selects a key, which needs the page, the worker and files of the site. */
async function use(page) {
  await page.waitForSelector("#start");
  await page.click('.ex[data-name="gpt_small.mdl"]');
  await page.waitForSelector("#work .row");
  await page.click(".row:not(.grp)");
  await page.waitForSelector(".insp .facts");
}

for (const [what, path, options] of [
  ["the root of a host", "/"],
  ["a sub-path", "/tools/v1/statelens/"],
  ["a sub-path with characters to encode", "/a%20b/%C3%A9/"],
  ["a host without content types", "/x/", { plain: true }],
]) {
  test(`the page works at ${what}`, async () => {
    const server = await host(decodeURIComponent(path), options);
    try {
      await visit(new URL(path, server.address).href, async (page) => {
        await page.goto(new URL(path, server.address).href);
        await use(page);
        await waitForCache(page);
      });
    } finally {
      await server.end();
    }
  });
}

test("after the first visit it works with the network off (core)", async () => {
  const server = await host("/sub/");
  try {
    await visit(server.address, async (page, context) => {
      await page.goto(server.address);
      await page.waitForSelector("#start");
      await waitForCache(page);
      await server.off();
      // The open window works without a reload.
      await use(page);
      // After a reload, with a query and as index.html, it opens dropped files.
      for (const address of [server.address, `${server.address}?from=home`, `${server.address}index.html`]) {
        await page.goto(address);
        await use(page);
        await drop(page, "body", [dropped("cerebras/v2.10.0/seed.mdl")]);
        await page.waitForFunction(() => document.title.startsWith("seed.mdl"));
      }
      // A new window has nothing in memory.
      const other = await context.newPage();
      await other.goto(server.address);
      await use(other);
    });
  } finally {
    await server.end();
  }
});

test("model families are available with the network off", async () => {
  const server = await host("/sub/");
  const folder = fixture("recipes/llama/inv_freq_bin_2shards.hf-to-cs2.9/in");
  try {
    await visit(server.address, async (page) => {
      await page.goto(server.address);
      await page.waitForSelector("#start");
      await waitForCache(page);
      await server.off();
      await page.goto(server.address);
      await page.waitForSelector("#start");
      await drop(page, "body", readdirSync(folder).map((name) => ({ name, bytes: readFileSync(join(folder, name)) })));
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.locator(".famtargets").getByRole("radio", { name: "Cerebras 2.9" }).first().click();
      await page.waitForSelector("#loads .w-good");
    });
  } finally {
    await server.end();
  }
});

test("exactly the files of the site are cached", async () => {
  const server = await host("/sub/");
  try {
    await visit(server.address, async (page) => {
      await page.goto(server.address);
      await waitForCache(page);
      const names = await page.evaluate(async () => {
        const [name] = await caches.keys();
        return (await (await caches.open(name)).keys()).map((request) => request.url);
      });
      const script = readFileSync(join(server.folder, "sw.js"), "utf8");
      const listed = [...script.matchAll(/^ {2}"([^"]+)": "sha256-/gm)].map((line) => line[1]);
      assert.ok(listed.includes("index.html") && listed.includes("examples/gpt_small.mdl") && listed.some((name) => name.endsWith(".wasm")));
      const expectedFiles = listed.map((name) => server.address + (name === "index.html" ? "" : name));
      assert.deepEqual(names.sort(), expectedFiles.sort());
    });
  } finally {
    await server.end();
  }
});

test("a newer version is announced, and installed only on request", async () => {
  const server = await host("/sub/");
  const title = (page) => page.getAttribute("meta[name=description]", "content");
  try {
    await visit(server.address, async (page, context) => {
      await page.goto(server.address);
      await waitForCache(page);
      const before = await title(page);
      change(server.folder, "index.html", (text) => text.replace(before, "The next version"));
      await page.reload();
      await use(page);
      await page.waitForSelector(".news");
      assert.match(await page.textContent(".news"), /newer version/);
      assert.equal(await title(page), before, "the old version stays");
      // Later: the old version stays, also in a new window and after a reload.
      await page.locator(".news").getByRole("button", { name: "Later" }).first().click();
      assert.equal(await page.$(".news"), null);
      assert.ok(await page.$("#work .row"), "the checkpoint stays open");
      const other = await context.newPage();
      await other.goto(server.address);
      await use(other);
      assert.equal(await title(other), before);
      // Reload: this window gets the new version; the other one keeps the old.
      await other.waitForSelector(".news");
      await page.reload();
      await page.waitForSelector(".news");
      await Promise.all([page.waitForEvent("load"), page.locator(".news").getByRole("button", { name: "Reload" }).first().click()]);
      await page.waitForSelector("#start");
      assert.equal(await title(page), "The next version");
      assert.ok(await other.$("#work .row"), "another window is not reloaded");
      assert.equal(await title(other), before);
      await server.off();
      await page.reload();
      await use(page);
      assert.equal(await title(page), "The next version");
    });
  } finally {
    await server.end();
  }
});

test("a partly deployed version is not installed", async () => {
  const server = await host("/sub/");
  try {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(server.address);
    await waitForCache(page);
    // The host has the new service worker, but not yet the new files.
    const script = readFileSync(join(server.folder, "sw.js"), "utf8");
    const old = readFileSync(join(server.folder, "boot.js"), "utf8");
    change(server.folder, "boot.js", (text) => `${text}\n// next`);
    writeFileSync(join(server.folder, "boot.js"), old);
    const state = await page.evaluate(async () => {
      const registration = await navigator.serviceWorker.getRegistration();
      const installing = new Promise((resolve) => registration.addEventListener("updatefound", () => resolve(registration.installing)));
      await registration.update();
      const worker = await installing;
      if (worker.state === "installing") await new Promise((resolve) => worker.addEventListener("statechange", resolve));
      return worker.state;
    });
    assert.equal(state, "redundant");
    await server.off();
    await page.reload();
    await use(page);
    assert.equal(await page.$(".news"), null);
    assert.notEqual(readFileSync(join(server.folder, "sw.js"), "utf8"), script);
    await context.close();
  } finally {
    await server.end();
  }
});

test("the page can be installed, and opens the files that it reads", async () => {
  const installable = async (page) => {
    const manifest = await page.evaluate(async () => (await fetch(document.querySelector("link[rel=manifest]").href)).json());
    assert.equal(new URL(manifest.start_url, site).href, site);
    for (const icon of manifest.icons) {
      const size = await page.evaluate(async (source) => {
        const image = new Image();
        image.src = source;
        await image.decode();
        return `${image.naturalWidth}x${image.naturalHeight}`;
      }, icon.src);
      if (icon.sizes !== "any") assert.equal(size, icon.sizes, icon.src);
    }
    assert.ok(manifest.icons.some((icon) => icon.purpose === "maskable"));
    // Reasons for which Chromium would not install the page.
    const session = await page.context().newCDPSession(page);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => true));
    const { installabilityErrors } = await session.send("Page.getInstallabilityErrors");
    const { errors } = await session.send("Page.getAppManifest");
    assert.deepEqual(errors, []);
    // Chromium treats windows of a test as private ones.
    assert.deepEqual(installabilityErrors.map((error) => error.errorId).filter((id) => id !== "in-incognito"), []);
  };
  await withPage(browser, installable, { serviceWorkers: "allow" });
});
