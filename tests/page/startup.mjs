// Measures how long the page takes to draw its first screen, on the first and on later visits, from hosts that compress
// with gzip, with brotli or not at all, at several speeds. Slow results are not failures.
//
//     node startup.mjs NAME=FOLDER [NAME=FOLDER …]

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { chromium } from "playwright-core";

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json",
};

/** Compression by host. Most hosts compress only files that they know to be text or Wasm. */
const HOSTS = {
  gzip: (bytes) => gzipSync(bytes, { level: 6 }),
  brotli: (bytes) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }),
  none: null,
};

/** Megabits per second. */
const SPEEDS = [10, 100];
const LATENCY = 20;
const PIECE = 16 << 10;
const FIRST_VISITS = 3;
const LATER_VISITS = 5;

/** Serves a folder like such a host. All requests share a connection of this speed. */
async function serve(folder, host, megabits) {
  const packed = new Map();
  let free = 0;
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, "http://localhost").pathname.replace(/\/$/, "/index.html");
    await wait(LATENCY);
    let bytes;
    try {
      bytes = readFileSync(join(folder, path));
    } catch {
      response.writeHead(404).end();
      return;
    }
    const type = TYPES[extname(path)];
    const headers = { "content-type": type ?? "application/octet-stream", etag: `"${bytes.length}"`, "cache-control": "no-cache" };
    if (request.headers["if-none-match"] === headers.etag) {
      response.writeHead(304, headers).end();
      return;
    }
    if (HOSTS[host] && type) {
      if (!packed.has(path)) packed.set(path, HOSTS[host](bytes));
      bytes = packed.get(path);
      headers["content-encoding"] = host === "gzip" ? "gzip" : "br";
    }
    response.writeHead(200, headers);
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.subarray(at, at + PIECE);
      free = Math.max(free, performance.now()) + (piece.length * 8) / (megabits * 1000);
      const ahead = free - performance.now();
      if (ahead > 1) await wait(ahead);
      response.write(piece);
    }
    response.end();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return server;
}

/** Returns the milliseconds from the request for the page to its first screen. */
async function visit(context, address) {
  const page = await context.newPage();
  await page.goto(address);
  await page.waitForSelector("#start");
  const taken = await page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now())))),
  );
  // Leaves time to cache the site and the compiled program.
  await page.waitForTimeout(2500);
  await page.close();
  return taken;
}

const middle = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];

async function measure(folder, host, megabits) {
  const server = await serve(folder, host, megabits);
  const address = `http://127.0.0.1:${server.address().port}/`;
  const [first, later] = [[], []];
  try {
    for (let round = 0; round < FIRST_VISITS; round++) {
      const profile = mkdtempSync(join(tmpdir(), "statelens-startup-"));
      const start = () =>
        chromium.launchPersistentContext(profile, {
          executablePath: process.env.STATELENS_CHROMIUM,
          args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
        });
      let context = await start();
      first.push(await visit(context, address));
      if (round === 0) {
        await visit(context, address);
        await context.close();
        context = await start();
        for (let again = 0; again < LATER_VISITS; again++) later.push(await visit(context, address));
      }
      await context.close();
      rmSync(profile, { recursive: true, force: true });
    }
  } finally {
    server.closeAllConnections();
    server.close();
  }
  return [middle(first), middle(later)].map(Math.round);
}

console.log("site      host    Mbit/s  first visit  later visits (median of five, in ms)");
for (const megabits of SPEEDS) {
  for (const host of Object.keys(HOSTS)) {
    for (const [name, folder] of process.argv.slice(2).map((one) => one.split("="))) {
      const [first, later] = await measure(folder, host, megabits);
      console.log(`${name.padEnd(9)} ${host.padEnd(7)} ${String(megabits).padStart(6)}  ${String(first).padStart(11)}  ${String(later).padStart(12)}`);
    }
  }
}
