// Measures how fast the page reads the values of large files, compared with a bare stream of the same file, and how long
// Netron takes to show it; for `cargo xtask bench`. Slow results are not failures.
//
//     node rates.mjs NETRON FILE…    NETRON is the folder of Netron's page, or empty

import { readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { basename, extname, join } from "node:path";
import { launch, site } from "./harness.mjs";

const REPEAT = 3;
const LONG = 600_000;

/** The script of a worker that reads a file and discards the data. */
const READER = `onmessage = async ({ data: file }) => {
  const reader = file.stream().getReader({ mode: "byob" });
  for (let buffer = new ArrayBuffer(4 << 20); ; ) {
    const { value, done } = await reader.read(new Uint8Array(buffer));
    if (done) break;
    buffer = value.buffer;
  }
  postMessage(0);
}`;

/** Runs `work(page)` in a new context. */
async function withPage(browser, work) {
  const context = await browser.newContext({ serviceWorkers: "block" });
  try {
    return await work(await context.newPage());
  } finally {
    await context.close();
  }
}

/** Returns the milliseconds that a worker takes to stream a file. */
function streamed(browser, file) {
  return withPage(browser, async (page) => {
    await page.route(`${site}blank`, (route) => route.fulfill({ contentType: "text/html", body: "<input type=file>" }));
    await page.goto(`${site}blank`);
    await page.setInputFiles("input", file);
    return page.evaluate(async (script) => {
      const [file] = document.querySelector("input").files;
      const worker = new Worker(URL.createObjectURL(new Blob([script])));
      const began = performance.now();
      const end = new Promise((done) => (worker.onmessage = done));
      worker.postMessage(file);
      await end;
      return performance.now() - began;
    }, READER);
  });
}

/** Returns the milliseconds that opening a file takes, and those that a scan of its values takes. */
function scanned(browser, file) {
  return withPage(browser, async (page) => {
    await page.goto(site);
    await page.waitForSelector("#start");
    await page.waitForTimeout(500);
    const began = performance.now();
    await page.setInputFiles("#choose-files", file);
    await page.waitForSelector("#work .row", { timeout: LONG });
    const open = performance.now() - began;
    const scan = await page.evaluate(async () => {
      const began = performance.now();
      document.querySelector("#scan").click();
      while (!document.querySelector("#scanned")) await new Promise((done) => setTimeout(done, 10));
      return performance.now() - began;
    });
    return { open, scan };
  });
}

/** Serves the files of Netron's page. */
function netron(folder) {
  const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json" };
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    try {
      const path = join(folder, pathname === "/" ? "index.html" : pathname);
      response.writeHead(200, { "Content-Type": types[extname(path)] ?? "application/octet-stream" }).end(readFileSync(path));
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done(server)));
}

/** Returns the milliseconds until Netron shows a file, or its error message. */
function shown(browser, address, file) {
  return withPage(browser, async (page) => {
    // Blocks Netron's requests to other sites.
    await page.route("**/*", (route) => (route.request().url().startsWith(address) ? route.continue() : route.abort()));
    await page.context().addCookies([{ name: "consent", value: "1", url: address }]);
    await page.goto(address);
    await page.waitForSelector(".welcome #open-file-button", { timeout: 60_000 });
    await page.waitForTimeout(500);
    const began = performance.now();
    await page.setInputFiles("#open-file-dialog", file);
    // `waitForFunction` needs `eval`, which Netron's page forbids.
    const devtools = await page.context().newCDPSession(page);
    const expression = `document.querySelector("body.default #target .node") ? true : document.body.classList.contains("alert") && document.querySelector("#message-text").textContent`;
    let found = false;
    while (!found && performance.now() - began < LONG) {
      found = (await devtools.send("Runtime.evaluate", { expression, returnByValue: true })).result.value;
      if (!found) await page.waitForTimeout(10);
    }
    if (typeof found === "string") return found;
    if (!found) return "it took too long";
    return performance.now() - began;
  });
}

async function best(measure) {
  let least = Infinity;
  for (let time = 0; time < REPEAT; time++) least = Math.min(least, await measure());
  return least;
}

const [, , folder, ...files] = process.argv;
const browser = await launch();
const server = folder ? await netron(folder) : undefined;
try {
  for (const file of files) {
    const bytes = statSync(file).size;
    const rate = (millis) => `${(bytes / millis / 1e6).toFixed(2)} GB/s`;
    console.log(`${basename(file)}, ${(bytes / 1e9).toFixed(2)} GB`);
    let open = Infinity;
    const stream = await best(() => streamed(browser, file));
    const scan = await best(async () => {
      const found = await scanned(browser, file);
      open = Math.min(open, found.open);
      return found.scan;
    });
    const share = Math.round((100 * stream) / scan);
    console.log(`  stream ${rate(stream)}  scan of values ${rate(scan)}, ${share} % of the stream (target: 60 %)`);
    console.log(`  open: ${Math.round(open)} ms`);
    if (server) {
      const found = await shown(browser, `http://127.0.0.1:${server.address().port}/`, file).catch((error) => error.message.split("\n")[0]);
      console.log(`  Netron: ${typeof found === "number" ? `${Math.round(found)} ms until it is shown` : `not opened: ${found}`}`);
    }
  }
} finally {
  server?.close();
  await browser.close();
}
