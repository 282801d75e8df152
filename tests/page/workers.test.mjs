// Several workers scan one file: what they find is what one finds, whatever becomes of the others.

import assert from "node:assert/strict";
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";
import { divide, launch, site } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-workers-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/**
 * Runs in the worker of the session, which has so many cores, and tells on the console what it hears of its helpers. What it
 * asks as the run of that number makes a helper fail.
 */
function watched({ cores, fails }) {
  Object.defineProperty(navigator, "hardwareConcurrency", { value: cores });
  const Plain = Worker;
  let runs = 0;
  globalThis.Worker = class extends Plain {
    constructor(address, options) {
      super(address, options);
      console.log("helper begun");
      this.addEventListener("message", ({ data }) => {
        // Of parts that a helper could not do it sends nothing.
        for (const found of Array.isArray(data) ? data : []) if (found instanceof Uint8Array) console.log(found.length > 0 ? "helper found" : "helper gave up");
      });
      this.addEventListener("error", () => console.log("helper failed"));
    }
    postMessage(data) {
      const broken = data[0] === 2 && ++runs === fails;
      super.postMessage(broken ? {} : data);
    }
    terminate() {
      console.log("helper ended");
      super.terminate();
    }
  };
}

/** Opens the page as on a computer of so many cores; `work(page, heard)` gets what was heard of helpers, and how often. */
async function onCores(cores, work, fails = 0) {
  const visit = async (page) => {
    const intrusion = `if (!globalThis.document) (${watched})(${JSON.stringify({ cores, fails })});\n`;
    await divide(page);
    await page.route("**/boot.js", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: intrusion + (await response.text()) });
    });
    await page.goto(site);
  };
  await visited(visit, work);
}

/** As `onCores`, of the page in one file. */
async function fromDisk(cores, work) {
  const whole = readFileSync(process.env.STATELENS_SINGLE, "utf8");
  const [, script] = /<script type="module" id="program">([^]*?)<\/script>/.exec(whole);
  const changed = `if (!globalThis.document) (${watched})(${JSON.stringify({ cores, fails: 0 })});\n${script}`;
  const hash = (text) => `sha256-${createHash("sha256").update(text).digest("base64")}`;
  assert.ok(whole.includes(hash(script)));
  const path = join(folder, "statelens.html");
  writeFileSync(path, whole.replace(hash(script), hash(changed)).replace(script, () => changed));
  await visited((page) => page.goto(pathToFileURL(path).href), work);
}

async function visited(visit, work) {
  const context = await browser.newContext({ serviceWorkers: "block" });
  const heard = { begun: 0, found: 0, "gave up": 0, failed: 0, ended: 0 };
  context.on("console", (message) => {
    const [, what] = /^helper ([\w ]+)$/.exec(message.text()) ?? [];
    if (what) heard[what]++;
  });
  try {
    const page = await context.newPage();
    await visit(page);
    await page.waitForSelector("#start");
    await work(page, heard);
  } finally {
    await context.close();
  }
}

/** A file of float32, mostly holes: two tensors that are divided, two that are equal, some small ones. */
function made(name, seed, more = 0) {
  const shapes = { "a.weight": [10_000, 6_000], "b.weight": [9_000, 6_001], "c.weight": [1_000, 1_000], "d.weight": [1_000, 1_000] };
  for (let at = 0; at < 20; at++) shapes[`layers.${at}.bias`] = [100];
  for (let at = 0; at < more; at++) shapes[`more.${at}.weight`] = [10_000, 10_000];
  const head = {};
  let at = 0;
  for (const [key, shape] of Object.entries(shapes)) {
    head[key] = { dtype: "F32", shape, data_offsets: [at, (at += shape.reduce((product, dim) => product * dim, 4))] };
  }
  const text = Buffer.from(JSON.stringify(head).padEnd(Math.ceil(JSON.stringify(head).length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const path = join(folder, name);
  const file = openSync(path, "w");
  writeSync(file, Buffer.concat([length, text]));
  ftruncateSync(file, 8 + text.length + at);
  const put = (key, first, values) => {
    const bytes = Buffer.from(Float32Array.from(values).buffer);
    writeSync(file, bytes, 0, bytes.length, 8 + text.length + head[key].data_offsets[0] + first * 4);
  };
  const values = Array.from({ length: 50_000 }, (_, at) => Math.sin(at * seed) * 1.5 ** (at % 40));
  for (let first = 0; first < 54_000_000; first += 1_111_111) for (const key of ["a.weight", "b.weight"]) put(key, first, values);
  put("b.weight", 40_000_000, [NaN, Infinity]);
  for (const key of ["c.weight", "d.weight"]) put(key, 777, values);
  for (let at = 0; at < 20; at++) put(`layers.${at}.bias`, 0, values.slice(at, at + 100));
  closeSync(file);
  return path;
}

let file;
const given = () => (file ??= made("many.safetensors", 0.37));

async function open(page, path) {
  await page.setInputFiles("#choose-files", path);
  await page.waitForSelector("#work .row");
}

/** What a scan finds, as it is shown: the rows, the findings, and the statistics of the tensor that was divided. */
async function found(page) {
  await page.waitForSelector("#scanned", { timeout: 120_000 });
  const rows = await page.locator("#work .row").allTextContents();
  await page.keyboard.press("f");
  const findings = await page.textContent(".sheet");
  await page.keyboard.press("Escape");
  await page.fill("#filter", "b.weight");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#statistics .two");
  const numbers = await page.locator("#statistics .two dd button").evaluateAll((all) => all.map((it) => it.textContent));
  const histogram = await page.locator(".histogram svg").getAttribute("aria-label");
  return { rows, findings, numbers, histogram };
}

let alone;
async function expected() {
  if (!alone) {
    await onCores(1, async (page, heard) => {
      await open(page, given());
      await page.click("#scan");
      alone = await found(page);
      assert.equal(heard.begun, 0);
    });
    assert.match(alone.findings, /1 NaN and 1 infinite in b\.weight/);
    assert.match(alone.findings, /c\.weight and d\.weight are equal bit for bit/);
  }
  return alone;
}

test("several workers find what one finds, and end with the scan", async () => {
  const wanted = await expected();
  await onCores(3, async (page, heard) => {
    await open(page, given());
    await page.click("#scan");
    assert.deepEqual(await found(page), wanted);
    assert.deepEqual([heard.begun, heard.ended], [2, 2]);
    assert.equal(heard["gave up"], 0);
    assert.ok(heard.found >= 2, `${heard.found} answers`);
  });
});

test("the page in one file has helpers, too, and finds the same", async () => {
  const wanted = await expected();
  await fromDisk(3, async (page, heard) => {
    assert.match(page.url(), /^file:/);
    await open(page, given());
    await page.click("#scan");
    assert.deepEqual(await found(page), wanted);
    assert.deepEqual([heard.begun, heard.failed, heard.ended], [2, 0, 2]);
    assert.equal(heard["gave up"], 0);
    assert.ok(heard.found >= 2, `${heard.found} answers`);
  });
});

test("what a helper that fails was to do is done all the same", async () => {
  const wanted = await expected();
  await onCores(
    2,
    async (page, heard) => {
      await open(page, given());
      await page.click("#scan");
      assert.deepEqual(await found(page), wanted);
      assert.equal(heard.failed, 1);
    },
    1,
  );
});

test("when a scan is stopped, or another file is opened, its helpers end", async () => {
  const wanted = await expected();
  const other = made("other.safetensors", 0.73, 20);
  await onCores(3, async (page, heard) => {
    await open(page, other);
    await page.click("#scan");
    await page.waitForSelector("#scanning");
    await page.click("#scan-stop");
    await page.waitForSelector("#scanned");
    assert.deepEqual([heard.begun, heard.ended], [2, 2]);
    await page.click("#scan");
    await page.waitForSelector("#scanning");
    await page.setInputFiles("#choose-files", given());
    await page.locator("#work .top .name", { hasText: "many.safetensors" }).waitFor();
    await page.click("#scan");
    assert.deepEqual(await found(page), wanted);
    assert.deepEqual([heard.begun, heard.ended], [6, 6]);
  });
});

test("a small file is scanned by one worker", async () => {
  await onCores(8, async (page, heard) => {
    await open(page, small());
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    assert.equal(heard.begun, 0);
  });
});

function small() {
  const path = join(folder, "small.safetensors");
  const text = Buffer.from(JSON.stringify({ w: { dtype: "F32", shape: [1000], data_offsets: [0, 4000] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const out = openSync(path, "w");
  writeSync(out, Buffer.concat([length, text, Buffer.alloc(4000)]));
  closeSync(out);
  return path;
}
