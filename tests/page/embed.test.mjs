// The page in a frame of another page, which offers files: docs/embed.md.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { accessibility, becomes, command, drawn, fixture, launch, site } from "./harness.mjs";

const MEGABYTE = 1 << 20;

let browser;
let server;
let origin;
before(async () => {
  browser = await launch();
  server = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<!doctype html><title>A page</title>"));
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  origin = `http://127.0.0.1:${server.address().port}`;
});
after(async () => {
  await browser.close();
  server.close();
});

/** Runs in the embedding page: embeds the site, records its messages, and answers its requests for bytes. */
function embedder({ src, files }) {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: 1200px; height: 700px";
  const bytes = files.map(({ base64 }) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
  Object.assign(globalThis, {
    messages: [],
    requests: [],
    /** "hold" to keep requests, "fail" to refuse them, "cut" to send less. */
    mode: "",
    held: [],
    answer(port, { id, file, offset, length }) {
      if (mode === "fail") return port.postMessage({ type: "error", id, message: "the disk is gone" });
      const buffer = bytes[file].slice(offset, offset + length - (mode === "cut" ? 1 : 0)).buffer;
      port.postMessage({ type: "bytes", id, bytes: buffer }, [buffer]);
    },
    offer(more = {}) {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = ({ data }) => {
        requests.push(data);
        if (data.type !== "read") return;
        if (mode === "hold") held.push(() => answer(port1, data));
        else answer(port1, data);
      };
      const list = files.map(({ name }, at) => ({ name, size: bytes[at].length }));
      frame.contentWindow.postMessage({ statelens: 1, type: "open", files: list, ...more }, "*", [port2]);
    },
    say: (message) => frame.contentWindow.postMessage(message, "*"),
  });
  addEventListener("message", ({ data, source }) => {
    if (source === frame.contentWindow) messages.push(data);
  });
  frame.src = src;
  document.body.append(frame);
}

/** Embeds the site in a page of another origin, and runs `work(page, frame)`. */
async function embedded(files, work, { named = origin, failures = [] } = {}) {
  const context = await browser.newContext({ serviceWorkers: "block", viewport: { width: 1280, height: 760 } });
  const problems = [];
  context.on("weberror", (event) => problems.push(String(event.error())));
  context.on("console", (message) => {
    if (message.type() === "error" && !failures.some((known) => message.text().includes(known))) problems.push(message.text());
  });
  context.on("request", (request) => {
    if (![site, origin, `blob:${site}`].some((own) => request.url().startsWith(own))) problems.push(request.url());
  });
  try {
    const page = await context.newPage();
    await page.goto(origin);
    const given = files.map(({ name, bytes }) => ({ name, base64: Buffer.from(bytes).toString("base64") }));
    await page.evaluate(embedder, { src: `${site}?embed=${encodeURIComponent(named)}`, files: given });
    const frame = page.frameLocator("iframe");
    await frame.locator("#start").waitFor();
    await work(page, frame);
  } finally {
    await context.close();
  }
  assert.deepEqual(problems, []);
}

const ready = (page) => becomes(() => page.evaluate(() => messages[0]), { statelens: 1, type: "ready", versions: [1] });
const said = (page, type) => page.evaluate((type) => messages.filter((message) => message.type === type), type);
const set = (page, mode) => page.evaluate((value) => void (mode = value), mode);

/** Returns a safetensors file with two tensors, `a` of 12 MB and `b` of 4 bytes. */
function large() {
  const spans = { a: [0, 12 * MEGABYTE], b: [12 * MEGABYTE, 12 * MEGABYTE + 4] };
  const entry = ([from, to]) => ({ dtype: "F32", shape: [(to - from) / 4], data_offsets: [from, to] });
  const header = JSON.stringify({ a: entry(spans.a), b: entry(spans.b) }).padEnd(136);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return { name: "large.safetensors", bytes: Buffer.concat([length, Buffer.from(header), Buffer.alloc(spans.b[1])]) };
}

test("opens offered files, reads parts of them, and reports the selection (core)", async () => {
  const bytes = readFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"));
  await embedded([{ name: "gpt_small.mdl", bytes }], async (page, frame) => {
    await ready(page);
    await page.evaluate(() => offer());
    await frame.locator("#work .row").first().waitFor();
    assert.equal(await frame.locator("header.top").isVisible(), false, "the page has a header");
    await becomes(async () => (await said(page, "opened")).map(({ name, keys }) => [name, keys > 10]), [["gpt_small.mdl", true]]);
    await frame.locator('.row[data-key="model.model.wte.weight"]').click();
    await frame.locator(".insp .vals td").first().waitFor();
    await becomes(async () => (await said(page, "selected")).at(-1).key, "model.model.wte.weight");
    const reads = await page.evaluate(() => requests);
    assert.ok(reads.every(({ type, file, offset, length }) => type === "read" && file === 0 && offset >= 0 && length > 0));
    assert.ok(reads.every(({ offset, length }) => offset + length <= bytes.length), "a read past the end");
    assert.equal(new Set(reads.map(({ id }) => id)).size, reads.length, "an id is used twice");
  });
});

test("axe finds nothing serious in an embedded page, light or dark", async () => {
  const bytes = readFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"));
  await embedded([{ name: "gpt_small.mdl", bytes }], async (page, frame) => {
    await ready(page);
    await page.evaluate(() => offer());
    await frame.locator('.row[data-key="model.model.wte.weight"]').click();
    await frame.locator(".insp .vals td").first().waitFor();
    const inner = page.frames().find((one) => one.url().startsWith(site));
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await drawn(inner);
      assert.deepEqual(await accessibility(inner, colorScheme), []);
    }
  });
});

test("opens a set of files, at the one that is named, with a selection", async () => {
  const folder = "hf/sharded";
  const small = (name, key) => {
    const header = JSON.stringify({ [key]: { dtype: "F32", shape: [1], data_offsets: [0, 4] } }).padEnd(80);
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    return { name: `${folder}/${name}`, bytes: Buffer.concat([length, Buffer.from(header), Buffer.from([0, 0, 128, 63])]) };
  };
  const shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
  const index = { metadata: { total_size: 8 }, weight_map: { one: shards[0], two: shards[1] } };
  const files = [
    small(shards[0], "one"),
    small(shards[1], "two"),
    { name: `${folder}/model.safetensors.index.json`, bytes: Buffer.from(JSON.stringify(index)) },
  ];
  await embedded(files, async (page, frame) => {
    await ready(page);
    await page.evaluate(() => offer({ main: 2, selected: "two" }));
    await becomes(async () => (await said(page, "opened")).map(({ keys }) => keys), [2]);
    await becomes(async () => (await said(page, "selected")).at(-1)?.key, "two");
    await becomes(() => frame.locator(".insp .vals td").first().innerText(), "1.0");
  });
});

test("checks offered files as a folder, by the rules of the command", async () => {
  const folder = fixture("folders/config_heads");
  const files = readdirSync(folder).map((name) => ({ name, bytes: readFileSync(join(folder, name)) }));
  await embedded(files, async (page, frame) => {
    await ready(page);
    await page.evaluate(() => offer());
    await frame.locator("#work .row").first().waitFor();
    await frame.locator('[data-check="folder"]').first().click();
    await becomes(() => frame.locator("#folder-verdict").getAttribute("data-whole"), "false");
    const rules = await frame.locator(".foldercheck [data-rule]").evaluateAll((rows) => rows.map((row) => row.dataset.rule));
    const { stdout } = spawnSync(command, ["check", folder, "--json"], { encoding: "utf8" });
    assert.deepEqual(rules, JSON.parse(stdout).findings.map(({ rule }) => rule));
  });
});

test("ignores messages of another origin", async () => {
  const failures = ["Failed to execute 'postMessage'"];
  const work = async (page, frame) => {
    // The page announces itself to the origin that its URL names only.
    await page.evaluate(() => offer());
    await page.evaluate(() => say({ statelens: 7, type: "open" }));
    await page.waitForTimeout(500);
    assert.deepEqual(await page.evaluate(() => [messages, requests]), [[], []]);
    assert.equal(await frame.locator("#work").count(), 0);
  };
  await embedded([large()], work, { named: "https://example.org", failures });
});

test("refuses other versions and unknown messages", async () => {
  await embedded([large()], async (page, frame) => {
    await ready(page);
    await page.evaluate(() => offer({ statelens: 2 }));
    await becomes(async () => (await said(page, "error")).map(({ code, versions }) => [code, versions]), [["version", [1]]]);
    await page.evaluate(() => say({ statelens: 1, type: "open", files: [{ name: "x", size: -1 }] }));
    await becomes(async () => (await said(page, "error")).map(({ code }) => code), ["version", "message"]);
    assert.deepEqual(await page.evaluate(() => requests), []);
    await page.evaluate(() => offer());
    await frame.locator("#work .row").first().waitFor();
  });
});

test("shows and reports errors of reading, and opens again", async () => {
  await embedded([large()], async (page, frame) => {
    await ready(page);
    for (const [mode, text] of [["fail", /the disk is gone/], ["cut", /of \d+ bytes/]]) {
      await set(page, mode);
      await page.evaluate(() => (messages.length = 0));
      await page.evaluate(() => offer());
      await frame.locator("#error").waitFor();
      await becomes(async () => (await said(page, "failed")).length, 1);
      assert.match((await said(page, "failed"))[0].message, text);
      assert.match(await frame.locator("#error").innerText(), text);
      await set(page, "");
      await page.evaluate(() => offer());
      await frame.locator("#work .row").first().waitFor();
    }
  });
});

test("requests parts at the same time, and cancels them", async () => {
  await embedded([large()], async (page, frame) => {
    await ready(page);
    await page.evaluate(() => offer());
    await frame.locator("#work .row").first().waitFor();
    const opening = await page.evaluate(() => requests.reduce((sum, { length }) => sum + length, 0));
    assert.ok(opening < 2 * MEGABYTE, `${opening} bytes were read to open it`);
    await set(page, "hold");
    await page.evaluate(() => (requests.length = 0));
    await frame.locator("#verify").click();
    await frame.locator("#verify-begin").click();
    await becomes(() => page.evaluate(() => held.length > 1), true);
    await frame.locator("#cancel").click();
    await becomes(() => page.evaluate(() => requests.filter(({ type }) => type === "cancel").length === held.length), true);
    await set(page, "");
    await page.evaluate(() => held.splice(0).forEach((late) => late()));
    await page.keyboard.press("Escape");
    await frame.locator(".row").first().click();
    await frame.locator(".insp .vals td").first().waitFor();
  });
});

test("closes the checkpoint, also while it is being opened", async () => {
  await embedded([large()], async (page, frame) => {
    await ready(page);
    for (const mode of ["hold", ""]) {
      await set(page, mode);
      await page.evaluate(() => offer());
      if (mode) await becomes(() => page.evaluate(() => held.length > 0), true);
      else await frame.locator("#work .row").first().waitFor();
      await page.evaluate(() => say({ statelens: 1, type: "close" }));
      await frame.locator("#start").waitFor();
      assert.equal(await frame.locator("#work").count(), 0);
    }
  });
});

for (const [width, height] of [[600, 500], [390, 700], [320, 480]]) {
  test(`a frame of ${width} by ${height} pixels shows keys, and details on a tab of their own`, async () => {
    const bytes = readFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"));
    await embedded([{ name: "gpt_small.mdl", bytes }], async (page, frame) => {
      await ready(page);
      await page.evaluate((style) => (document.querySelector("iframe").style.cssText = style), `width: ${width}px; height: ${height}px`);
      await page.evaluate(() => offer());
      await frame.locator("#work .row").first().waitFor();
      const box = (selector) => frame.locator(selector).first().evaluate((it) => it.getBoundingClientRect().toJSON());
      const [tabs, list, status] = [await box(".tabs"), await box(".keytable .scroller"), await box("#work .status")];
      assert.ok(tabs.height < 60, `tabs of ${tabs.height} pixels`);
      assert.ok(list.height > height / 4 && list.bottom <= status.top + 1, `list from ${list.top} to ${list.bottom}`);
      assert.ok(status.bottom <= height + 1 || height < 360, `status to ${status.bottom}`);
      await frame.locator("#work .row[data-key]:not(.grp)").first().click();
      await frame.locator(".insp .vals td").first().waitFor();
      assert.ok((await box(".insp")).height > height / 4);
    });
  });
}
