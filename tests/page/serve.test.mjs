// `statelens serve` serves the page to browsers on this machine only.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { command, fixture, launch } from "./harness.mjs";

let browser;
let top;
let served;
before(async () => {
  browser = await launch();
  // A folder to serve, and next to it a file and a folder that must not be served.
  top = mkdtempSync(join(tmpdir(), "statelens-serve-"));
  const dir = join(top, "models");
  mkdirSync(join(dir, "run 1"), { recursive: true });
  mkdirSync(join(top, "models-2"));
  copyFileSync(fixture("cerebras/v2.10.0/seed.mdl"), join(dir, "seed.mdl"));
  copyFileSync(fixture("cerebras/v2.10.0/seed.pt"), join(dir, "run 1", "se#ed&1.pt"));
  writeFileSync(join(top, "secret.txt"), "secret");
  writeFileSync(join(top, "models-2", "secret.txt"), "secret");
  symlinkSync("../secret.txt", join(dir, "link.pt"));
  symlinkSync("..", join(dir, "up"));
  served = await serve("serve", dir);
});
after(async () => {
  await browser.close();
  served?.stop();
  rmSync(top, { recursive: true });
});

/** Starts the command; returns its address, and the parts of it. */
async function serve(...args) {
  const child = spawn(command, [...args, "--port", "0", "--no-browser"], { stdio: ["ignore", "pipe", "pipe"] });
  const text = await new Promise((resolve, reject) => {
    let out = "";
    let errors = "";
    child.stdout.on("data", (bytes) => (out += bytes).includes("\n") && resolve(out));
    child.stderr.on("data", (bytes) => (errors += bytes));
    child.on("exit", (code) => reject(new Error(`statelens ended with ${code}: ${errors}`)));
  });
  const address = text.match(/http:\S+/)[0];
  const { port, pathname } = new URL(address);
  return { address, port: Number(port), token: pathname.split("/")[1], stop: () => child.kill() };
}

/** Sends a request unchanged, which HTTP clients do not; returns status, head and body. */
function raw(path, { host = `127.0.0.1:${served.port}`, headers = [], method = "GET" } = {}) {
  return new Promise((resolve, reject) => {
    const socket = connect(served.port, "127.0.0.1", () => {
      socket.write([`${method} ${path} HTTP/1.1`, ...(host === null ? [] : [`Host: ${host}`]), ...headers, "", ""].join("\r\n"));
    });
    const chunks = [];
    socket.on("data", (bytes) => chunks.push(bytes));
    socket.on("error", reject);
    socket.on("end", () => {
      const text = Buffer.concat(chunks).toString("latin1");
      const cut = text.indexOf("\r\n\r\n");
      resolve({ status: Number(text.split(" ")[1]), head: text.slice(0, cut), body: text.slice(cut + 4) });
    });
  });
}

test("serves the files of the folder, in full and by range", async () => {
  const whole = await raw(`/${served.token}/files/seed.mdl`);
  assert.equal(whole.status, 200);
  assert.match(whole.head, /cache-control: no-store/i);
  const part = await raw(`/${served.token}/files/seed.mdl`, { headers: ["Range: bytes=1-3"] });
  assert.equal(part.status, 206);
  assert.equal(part.body, "HDF");
  assert.match(part.head, new RegExp(`content-range: bytes 1-3/${whole.body.length}`, "i"));
  const other = await raw(`/${served.token}/files/run%201/se%23ed%261.pt`, { headers: ["Range: bytes=0-1"] });
  assert.equal(other.body, "PK");
  const listing = JSON.parse((await raw(`/${served.token}/files/`)).body);
  assert.equal(listing.folder, "models");
  assert.deepEqual(
    listing.checkpoints.map(({ main, files }) => [main, files.length]).sort(),
    [["run 1/se#ed&1.pt", 1], ["seed.mdl", 1]],
    "links that lead out are not listed",
  );
  const names = listing.files.map(({ path }) => path).sort();
  assert.deepEqual(names, ["run 1/se#ed&1.pt", "seed.mdl"]);
  assert.ok(listing.files.every(({ bytes, modified }) => bytes > 0 && Math.abs(Date.now() - modified) < 1e10));
});

test("no path escapes the folder", async () => {
  const before = await raw(`/${served.token}/files/seed.mdl`);
  assert.equal(before.status, 200, "the probe works at all");
  for (const path of [
    "../secret.txt",
    "%2e%2e/secret.txt",
    "..%2fsecret.txt",
    "%2e%2e%2fsecret.txt",
    "%252e%252e/secret.txt",
    "run%201/../../secret.txt",
    "run%201/..%2f..%2fsecret.txt",
    "..%5csecret.txt",
    "../models-2/secret.txt",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "//etc/passwd",
    "link.pt",
    "up/secret.txt",
    "up/models-2/secret.txt",
    "seed.mdl%00.txt",
    "%c0%ae%c0%ae/secret.txt",
    "run%201",
  ]) {
    const { status, body } = await raw(`/${served.token}/files/${path}`);
    assert.ok(status === 404 || status === 403 || status === 400, `${path}: ${status}`);
    assert.ok(!/^secret|root:/.test(body), path);
  }
  for (const path of [`/${served.token}/../secret.txt`, `/${served.token}/%2e%2e/secret.txt`, "/../secret.txt"]) {
    assert.notEqual((await raw(path)).status, 200, path);
  }
});

test("requests without the token are refused", async () => {
  const wrong = served.token.replace(/^./, (digit) => (digit === "0" ? "1" : "0"));
  for (const path of ["/", "/index.html", "/files/seed.mdl", `/${wrong}/`, `/${wrong}/files/seed.mdl`, `/${served.token}`,
    `/?token=${served.token}`, `/${served.token.slice(1)}/`, `/${served.token.toUpperCase()}X/`]) {
    const { status, body } = await raw(path);
    assert.equal(status, 403, path);
    assert.match(body, /token/);
  }
  assert.match(served.token, /^[0-9a-f]{32}$/);
});

test("another host, another origin and another method are refused", async () => {
  const page = `/${served.token}/`;
  assert.equal((await raw(page)).status, 200);
  assert.equal((await raw(page, { host: `localhost:${served.port}` })).status, 200);
  assert.equal((await raw(page, { headers: [`Origin: http://127.0.0.1:${served.port}`] })).status, 200);
  for (const host of ["evil.example", `evil.example:${served.port}`, `127.0.0.1.evil.example:${served.port}`, "", null]) {
    assert.equal((await raw(page, { host })).status, 403, `Host: ${host}`);
  }
  const twice = { headers: [`Host: evil.example`] };
  assert.equal((await raw(page, twice)).status, 403, "two hosts");
  for (const header of [
    "Origin: http://evil.example",
    "Origin: null",
    "Origin: http://127.0.0.1:1",
    `Origin: https://127.0.0.1:${served.port}`,
    "Sec-Fetch-Site: cross-site",
    "Sec-Fetch-Site: same-site",
  ]) {
    assert.equal((await raw(page, { headers: [header] })).status, 403, header);
  }
  assert.equal((await raw(page, { headers: ["Sec-Fetch-Site: none"] })).status, 200);
  assert.equal((await raw(page, { method: "POST" })).status, 405);
  assert.equal((await raw(page, { method: "OPTIONS" })).status, 405);
});

test("a page of another origin is refused even with the token", async () => {
  const other = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<p>other"));
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${other.address().port}/`);
    const got = await page.evaluate(async (address) => {
      const tries = {
        cors: () => fetch(`${address}files/seed.mdl`).then((answer) => answer.text()),
        opaque: () => fetch(`${address}files/seed.mdl`, { mode: "no-cors" }).then((answer) => answer.type),
        script: () => load("script", `${address}boot.js`),
        image: () => load("img", `${address}files/seed.mdl`),
      };
      function load(tag, source) {
        return new Promise((resolve, reject) => {
          const node = Object.assign(document.createElement(tag), { src: source, onload: () => resolve("loaded"), onerror: () => reject(new Error("refused")) });
          document.body.append(node);
        });
      }
      const out = {};
      for (const [name, attempt] of Object.entries(tries)) out[name] = await attempt().then((value) => `got ${value}`, () => "refused");
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.src = address;
      await new Promise((resolve) => (frame.onload = resolve));
      return out;
    }, served.address);
    assert.deepEqual(got, { cors: "refused", opaque: "refused", script: "refused", image: "refused" });
    assert.deepEqual(page.frames().slice(1).map((frame) => frame.url()), ["chrome-error://chromewebdata/"], "no frame");
  } finally {
    await context.close();
    other.close();
  }
});

/** Runs `work(page)` at an address of the command; fails on errors and on requests to other servers. */
async function visit(address, work) {
  const context = await browser.newContext();
  const { origin } = new URL(address);
  const problems = [];
  context.on("weberror", (event) => problems.push(String(event.error())));
  context.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith("blob:")) problems.push(request.url());
  });
  context.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  try {
    const page = await context.newPage();
    await page.goto(address);
    await work(page);
  } finally {
    await context.close();
  }
  assert.deepEqual(problems, []);
}

const keys = (page) => page.$$eval(".row:not(.grp) .ck", (cells) => cells.map((cell) => cell.getAttribute("title")));

test("the page lists the folder's checkpoints, and opens them by ranges (core)", async () => {
  await visit(served.address, async (page) => {
    await page.waitForSelector(".exs .ex");
    assert.equal(await page.textContent(".exhead"), "In models");
    assert.deepEqual((await page.$$eval(".exs .ex .m", (names) => names.map((name) => name.textContent))).sort(), ["run 1/se#ed&1.pt", "seed.mdl"]);
    for (const name of ["seed.mdl", "run 1/se#ed&1.pt"]) {
      await page.goto(served.address);
      await page.click(`.ex:has(.m:text-is("${name}"))`);
      await page.waitForSelector("#work .row");
      assert.deepEqual(await keys(page), ["a.b", "a.c", "d.0", "d.1", "d.2"], name);
      assert.equal(await page.title(), `${name.split("/").pop()} \u{b7} Statelens`);
      assert.equal(await page.getAttribute("#work", "data-name"), name, "the folder is part of the name");
      await page.click('.row:has([title="a.b"])');
      await page.waitForSelector(".insp .facts");
    }
    assert.equal(await page.evaluate(() => navigator.serviceWorker.getRegistrations().then((all) => all.length)), 0, "no service worker");
  });
});

test("a served run folder is shown as one that is dropped", async () => {
  const run = join(top, "run");
  mkdirSync(run);
  for (const step of [500, 1000, 1500]) copyFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"), join(run, `checkpoint_${step}.mdl`));
  truncateSync(join(run, "checkpoint_1500.mdl"), 100_000);
  writeFileSync(join(run, "checkpoints_index.yaml"), "- run/checkpoint_500.mdl\n- run/checkpoint_1500.mdl\n");
  const own = await serve("serve", run);
  // The newest whole one of those that the index lists.
  const name = "checkpoint_500.mdl";
  try {
    await visit(own.address, async (page) => {
      await page.click('.ex[data-name="run"]');
      await page.waitForSelector("#save-list:not([disabled])", { state: "attached" });
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-list")]);
      assert.equal(readFileSync(await download.path(), "utf8"), execFileSync(command, ["runs", run, "--json"], { encoding: "utf8" }));
      await page.click("#read-run");
      await page.waitForSelector("#run-values .chart circle");
      await page.click("#open-step");
      await page.waitForSelector("#work .row");
      assert.equal(await page.getAttribute("#work", "data-name"), name);
      await page.goBack();
      await page.waitForSelector("#run .row");
      // Two of them are compared.
      for (const key of ["d", "k", "d"]) await page.keyboard.press(key);
      await page.waitForSelector("#save-report:not([disabled])");
      await page.goBack();
      await page.click("#open-step");
      await page.waitForSelector("#work .row");
      // The address leads to the checkpoint.
      await page.waitForFunction(() => location.search.includes("checkpoint_500.mdl"));
      await page.reload();
      await page.waitForSelector("#work .row");
      assert.match(await page.title(), /^checkpoint_500\.mdl/);
    });
  } finally {
    own.stop();
  }
});

test("only the needed parts of a large file are read", async () => {
  // A sparse file of 500 MB.
  const { ftruncateSync, openSync, writeSync, closeSync } = await import("node:fs");
  const header = JSON.stringify({ big: { dtype: "F32", shape: [125, 1000, 1000], data_offsets: [0, 500_000_000] } });
  const file = openSync(join(top, "models", "big.safetensors"), "w");
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  writeSync(file, Buffer.concat([length, Buffer.from(header)]));
  ftruncateSync(file, 8 + header.length + 500_000_000);
  closeSync(file);
  const opened = await serve("open", join(top, "models", "big.safetensors"));
  try {
    assert.match(opened.address, /\/\?url=files\/big\.safetensors$/);
    let bytes = 0;
    await visit(opened.address, async (page) => {
      page.context().on("response", (answer) => {
        if (answer.url().includes("/files/")) bytes += Number(answer.headers()["content-length"] ?? 0);
      });
      await page.reload();
      await page.waitForSelector("#work .row");
      assert.deepEqual(await keys(page), ["big"]);
      await page.waitForSelector("#fetched");
      await page.click(".row:not(.grp)");
      await page.waitForSelector(".insp .vals td");
    });
    assert.ok(bytes > 0 && bytes < 4_000_000, `${bytes} bytes were read`);
  } finally {
    opened.stop();
    rmSync(join(top, "models", "big.safetensors"));
  }
});

test("`statelens open` starts the page with the file, whatever its name", async () => {
  const opened = await serve("open", join(top, "models", "run 1", "se#ed&1.pt"));
  try {
    await visit(opened.address, async (page) => {
      await page.waitForSelector("#work .row");
      assert.deepEqual(await keys(page), ["a.b", "a.c", "d.0", "d.1", "d.2"]);
    });
  } finally {
    opened.stop();
  }
});

test("without a folder it serves only the page", async () => {
  const alone = await serve("serve");
  try {
    const answer = await fetch(`${alone.address}files/seed.mdl`);
    assert.equal(answer.status, 404);
  } finally {
    alone.stop();
  }
});
