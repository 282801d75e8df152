// The browser, the site and the fixtures for the page's tests. `cargo xtask test-page` builds the
// site, serves it and says where things are in the environment.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Milliseconds that a busy computer is given to show what was done. */
const PATIENCE = 20_000;

/** The top of the repository. */
export const root = fileURLToPath(new URL("../../", import.meta.url));

/** The address of the served site. */
export const site = fromEnvironment("STATELENS_URL");

/** The program `statelens`. */
export const command = fromEnvironment("STATELENS_COMMAND");

/** Returns the path of a fixture, for example `fixture("torch/x.pt")`. `cargo xtask test-page` makes the folder. */
export function fixture(name) {
  return `${root}target/fixtures/${name}`;
}

/**
 * Starts a headless browser that downloads, updates and reports nothing of its own.
 * @param {string[]} more further command line switches
 */
export function launch(more = []) {
  return chromium.launch({
    executablePath: fromEnvironment("STATELENS_CHROMIUM"),
    args: [
      "--headless",
      // Containers run as root and offer no sandbox of their own.
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      ...more,
    ],
  });
}

/**
 * Opens the site in a fresh context and runs `work(page)`. Afterwards it fails when the page (or its
 * worker) asked for anything beyond the site's own files, broke the content security policy, threw
 * an error that nobody caught, or printed an error to the console.
 * @param {import("playwright-core").Browser} browser
 * @param {(page: import("playwright-core").Page) => Promise<void>} work
 * @param {import("playwright-core").BrowserContextOptions} options
 */
export async function withPage(browser, work, options = {}) {
  // The service worker would fetch and hash the whole site for each test.
  const context = await browser.newContext({ acceptDownloads: true, serviceWorkers: "block", ...options });
  const strangers = [];
  const errors = [];
  context.on("request", (request) => {
    if (!ours(request.url())) strangers.push(request.url());
  });
  context.on("weberror", (event) => errors.push(String(event.error())));
  context.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  try {
    const page = await context.newPage();
    await page.goto(site);
    // The load event comes before the Wasm has run: until the first screen stands, nobody listens.
    await page.waitForSelector("#start");
    await work(page);
  } finally {
    await context.close();
  }
  assert.deepEqual(strangers, [], "requests beyond the site's own files");
  assert.deepEqual(errors, [], "errors in the page");
}

/** Runs in the worker: each piece of a stream of a file, and each read at once, takes so many milliseconds. */
function slow({ streams = [0], reads = 0 }) {
  const plain = Blob.prototype.stream;
  let begun = 0;
  Blob.prototype.stream = function () {
    const delay = streams[Math.min(begun++, streams.length - 1)];
    const reader = plain.call(this).getReader({ mode: "byob" });
    return new ReadableStream({
      type: "bytes",
      async pull(controller) {
        await new Promise((done) => setTimeout(done, delay));
        const { view } = controller.byobRequest;
        const { value, done } = await reader.read(new Uint8Array(Math.min(view.byteLength, 1 << 20)));
        if (done) controller.close();
        else new Uint8Array(view.buffer, view.byteOffset, view.byteLength).set(value);
        controller.byobRequest.respond(value?.byteLength ?? 0);
      },
      cancel: () => reader.cancel(),
    });
  };
  const read = FileReaderSync.prototype.readAsArrayBuffer;
  FileReaderSync.prototype.readAsArrayBuffer = function (blob) {
    for (const until = performance.now() + reads; performance.now() < until; );
    return read.call(this, blob);
  };
}

/**
 * As `withPage`, but the page's worker reads files slowly.
 * @param {{streams?: number[], reads?: number}} slowness milliseconds that each piece takes of the first stream of a
 * file, of the second, and of all further ones; and each read at once
 */
export function withSlowPage(browser, slowness, work, options = {}) {
  const slowly = async (page) => {
    await inWorker(page, slow, slowness);
    await work(page);
  };
  return withPage(browser, slowly, options);
}

/**
 * Opens the page again, with a worker that first calls `script(argument)`.
 * @param {import("playwright-core").Page} page
 */
export async function inWorker(page, script, argument) {
  await page.route("**/boot.js", async (route) => {
    const response = await route.fetch();
    const body = `if (!globalThis.document) (${script})(${JSON.stringify(argument)});\n${await response.text()}`;
    await route.fulfill({ response, body });
  });
  await page.reload();
  await page.waitForSelector("#start");
}

/**
 * The dialog for files that `act` opens. The browser has to know that it is waited for before it is
 * asked for: a key that is pressed at once may overtake that, and then no dialog is told of.
 * @param {import("playwright-core").Page} page
 * @param {() => Promise<void>} act
 */
export async function choosing(page, act) {
  const chooser = page.waitForEvent("filechooser");
  // Whatever went before is done when this is answered.
  await page.evaluate(() => {});
  await act();
  return chooser;
}

/**
 * Drops files on an element the way a user does; they are given as `{name, bytes}`, so that a test
 * need not have them on disk.
 */
export async function drop(page, selector, files) {
  const given = files.map(({ name, bytes }) => ({ name, base64: Buffer.from(bytes).toString("base64") }));
  const transfer = await page.evaluateHandle((given) => {
    const transfer = new DataTransfer();
    for (const { name, base64 } of given) {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      transfer.items.add(new File([bytes], name));
    }
    return transfer;
  }, given);
  for (const event of ["dragenter", "dragover", "drop"]) {
    await page.dispatchEvent(selector, event, { dataTransfer: transfer });
  }
  await transfer.dispose();
}

/** A fixture in the form that `drop` takes. */
export function dropped(name) {
  return { name: name.split("/").pop(), bytes: readFileSync(fixture(name)) };
}

/**
 * What axe has to say of a screen at rest that is serious, or breaks one of the rules named. `cargo xtask pictures` keeps a
 * picture of it as well, under the name of the screen.
 * @returns {Promise<string[]>} rule and elements of each
 */
export async function accessibility(page, screen, named = []) {
  // What fades in has less contrast until it is there.
  await page.evaluate(() => {
    const ending = document.getAnimations().filter((one) => one.effect?.getComputedTiming().iterations !== Infinity);
    return Promise.all(ending.map((one) => one.finished.catch(() => {})));
  });
  if (process.env.STATELENS_PICTURES) {
    const way = await page.evaluate(() => `${innerWidth}-${matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"}`);
    await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `${screen.replace(/\W+/g, "-")}-${way}.png`) });
  }
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const found = await axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": { enabled: true } } });
    // The rows of a grid that has the focus itself are scrolled by its arrow keys.
    const scrolledByGrid = ({ target: [rows] }) => document.querySelector(rows)?.closest('[role="grid"][tabindex="0"]');
    const scrolling = found.violations.find(({ id }) => id === "scrollable-region-focusable");
    if (scrolling) scrolling.nodes = scrolling.nodes.filter((node) => !scrolledByGrid(node));
    return found.violations.filter(({ nodes }) => nodes.length > 0);
  });
  const bad = violations.filter(({ id, impact }) => ["serious", "critical"].includes(impact) || named.includes(id));
  return bad.map(({ id, nodes }) => `${screen}: ${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}

/**
 * Reads again and again until `read()` gives what is expected, as the page answers a key or a wheel in a later frame.
 * @param {() => Promise<unknown>} read
 * @param {unknown} expected what `assert.deepEqual` takes for the same
 */
export async function becomes(read, expected) {
  for (const until = Date.now() + PATIENCE; ; await new Promise((done) => setTimeout(done, 50))) {
    const found = await read();
    if (isDeepStrictEqual(found, expected) || Date.now() > until) return assert.deepEqual(found, expected);
  }
}

/** Waits until the page has drawn twice: whatever it was about to do at once is done. */
export async function drawn(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
}

/** Whether an address is one of the site's, or made by the page itself. */
function ours(url) {
  return url.startsWith(site) || url.startsWith(`blob:${site}`) || url.startsWith("data:");
}

function fromEnvironment(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run the page's tests with \`cargo xtask test-page\``);
  return value;
}
