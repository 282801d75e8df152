// The browser, the site and the fixtures for the page's tests. `cargo xtask test-page` builds and serves the site, and
// passes its URL and other paths in environment variables.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Milliseconds to wait for the page on a busy machine. */
const PATIENCE = 20_000;

/** The folder of the repository, with a slash at the end. */
export const root = fileURLToPath(new URL("../../", import.meta.url));

/** The URL of the served site. */
export const site = fromEnvironment("STATELENS_URL");

/** The path of the program `statelens`. */
export const command = fromEnvironment("STATELENS_COMMAND");

/** Returns the path of a fixture, for example `fixture("torch/x.pt")`. `cargo xtask test-page` creates the fixtures. */
export function fixture(name) {
  return `${root}target/fixtures/${name}`;
}

/**
 * Starts a headless browser without background downloads, updates and reports.
 * @param {string[]} more further command line switches
 */
export function launch(more = []) {
  return chromium.launch({
    executablePath: fromEnvironment("STATELENS_CHROMIUM"),
    args: [
      "--headless",
      // Chromium's sandbox does not work as root in a container.
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
 * Opens the site in a new context and runs `work(page)`. Then fails if the page or its worker requested anything but the
 * site's own files, violated the content security policy, threw an uncaught error, or printed an error to the console.
 * @param {import("playwright-core").Browser} browser
 * @param {(page: import("playwright-core").Page) => Promise<void>} work
 * @param {import("playwright-core").BrowserContextOptions} options
 */
export async function withPage(browser, work, options = {}) {
  // The service worker would fetch and hash the whole site for each test.
  const context = await browser.newContext({ acceptDownloads: true, serviceWorkers: "block", ...options });
  const foreign = [];
  const errors = [];
  context.on("request", (request) => {
    if (!isOwn(request.url())) foreign.push(request.url());
  });
  context.on("weberror", (event) => errors.push(String(event.error())));
  context.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  try {
    const page = await context.newPage();
    await page.goto(site);
    // The load event fires before the Wasm runs. The page handles events once its first screen is drawn.
    await page.waitForSelector("#start");
    await work(page);
  } finally {
    await context.close();
  }
  assert.deepEqual(foreign, [], "requests beyond the site's own files");
  assert.deepEqual(errors, [], "errors in the page");
}

/** Delays each piece of a file's stream and each synchronous read; streams can be held. Runs in the worker. */
function slow({ streams = [0], reads = 0 }) {
  let released = Promise.resolve();
  let release;
  new BroadcastChannel("streams").onmessage = ({ data }) => {
    release?.();
    if (data === "hold") released = new Promise((done) => (release = done));
  };
  const plain = Blob.prototype.stream;
  let opened = 0;
  Blob.prototype.stream = function () {
    const delay = streams[Math.min(opened++, streams.length - 1)];
    const reader = plain.call(this).getReader({ mode: "byob" });
    return new ReadableStream({
      type: "bytes",
      async pull(controller) {
        await new Promise((done) => setTimeout(done, delay));
        await released;
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
 * Like `withPage`, but the page's worker reads files slowly.
 * @param {{streams?: number[], reads?: number}} slowness milliseconds per piece of the first stream of a file, of the second,
 * and so on (the last number repeats); and per synchronous read
 */
export function withSlowPage(browser, slowness, work, options = {}) {
  const slowly = async (page) => {
    await inWorker(page, slow, slowness);
    await work(page);
  };
  return withPage(browser, slowly, options);
}

/**
 * Holds the streams of files in a page of `withSlowPage`, so that a pass goes on until `releaseStreams`, however busy the
 * machine is.
 * @param {import("playwright-core").Page} page
 */
export const holdStreams = (page) => page.evaluate(() => new BroadcastChannel("streams").postMessage("hold"));

/** @param {import("playwright-core").Page} page */
export const releaseStreams = (page) => page.evaluate(() => new BroadcastChannel("streams").postMessage("release"));

/**
 * Reloads the page with a worker that first calls `script(argument)`.
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
 * Returns the file dialog that `act` opens. The browser must intercept dialogs before `act`, because a key press may
 * overtake the request to intercept them.
 * @param {import("playwright-core").Page} page
 * @param {() => Promise<void>} act
 */
export async function choosing(page, act) {
  const chooser = page.waitForEvent("filechooser");
  // The browser handles requests in order: after this one, it intercepts dialogs.
  await page.evaluate(() => {});
  await act();
  return chooser;
}

/**
 * Drops files on an element, as a user does. Files are `{name, bytes}`, so they need not exist on disk.
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

/** Returns a fixture in the form that `drop` takes. */
export function dropped(name) {
  return { name: name.split("/").pop(), bytes: readFileSync(fixture(name)) };
}

/**
 * Runs axe on a screen, and returns the violations that are serious or break one of `rules`. With STATELENS_PICTURES set
 * (`cargo xtask pictures`), also saves a screenshot under the screen's name.
 * @returns {Promise<string[]>} screen, rule and elements of each
 */
export async function accessibility(page, screen, rules = []) {
  // Elements that fade in have less contrast until the animation ends.
  await page.evaluate(() => {
    const finite = document.getAnimations().filter((one) => one.effect?.getComputedTiming().iterations !== Infinity);
    return Promise.all(finite.map((one) => one.finished.catch(() => {})));
  });
  if (process.env.STATELENS_PICTURES) {
    const variant = await page.evaluate(() => `${innerWidth}-${matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"}`);
    await page.screenshot({ path: join(process.env.STATELENS_PICTURES, `${screen.replace(/\W+/g, "-")}-${variant}.png`) });
  }
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const found = await axe.run(document, { resultTypes: ["violations"], rules: { "label-content-name-mismatch": { enabled: true } } });
    // Arrow keys scroll the rows of a grid that can have the focus.
    const scrolledByGrid = ({ target: [rows] }) => document.querySelector(rows)?.closest('[role="grid"][tabindex="0"]');
    const scrolling = found.violations.find(({ id }) => id === "scrollable-region-focusable");
    if (scrolling) scrolling.nodes = scrolling.nodes.filter((node) => !scrolledByGrid(node));
    return found.violations.filter(({ nodes }) => nodes.length > 0);
  });
  const bad = violations.filter(({ id, impact }) => ["serious", "critical"].includes(impact) || rules.includes(id));
  return bad.map(({ id, nodes }) => `${screen}: ${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}

/**
 * Polls `read()` until it returns the expected value, because the page handles input in a later frame.
 * @param {() => Promise<unknown>} read
 * @param {unknown} expected compared by `assert.deepEqual`
 */
export async function becomes(read, expected) {
  for (const until = Date.now() + PATIENCE; ; await new Promise((done) => setTimeout(done, 50))) {
    const found = await read();
    if (isDeepStrictEqual(found, expected) || Date.now() > until) return assert.deepEqual(found, expected);
  }
}

/** Waits for two frames, so that pending changes are drawn. */
export async function drawn(page) {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
}

/** Returns whether a URL belongs to the site, or was created by the page. */
function isOwn(url) {
  return url.startsWith(site) || url.startsWith(`blob:${site}`) || url.startsWith("data:");
}

function fromEnvironment(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run the page's tests with \`cargo xtask test-page\``);
  return value;
}
