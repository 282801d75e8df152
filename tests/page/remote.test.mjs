// Remote checkpoints: ranges are fetched after confirmation, from servers of all kinds.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, command, fixture, launch, root, site } from "./harness.mjs";

const example = readFileSync(`${root}tests/fixtures/cerebras/v2.10.0/gpt_small.mdl`);

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-remote-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
  // A failed test leaves its server open, which would keep the process alive.
  for (const close of open) await close();
});

/** Functions that close the servers of {@link serve} that are still open. */
const open = new Set();

/**
 * Starts a server on another port, which is another origin. `answer(request, response, file)` may respond, and then returns
  * true. Otherwise the server sends ranges of `files` to any origin.
 */
async function serve(files, answer = () => false) {
  const requests = [];
  const server = createServer((request, response) => {
    requests.push({ method: request.method, url: request.url, headers: request.headers });
    const bytes = files[request.url.split("?")[0]];
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Access-Control-Expose-Headers", "Content-Range, ETag");
    if (answer(request, response, bytes, requests.length)) return;
    if (!bytes) return void response.writeHead(404).end();
    part(request, response, bytes, '"1"');
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${server.address().port}`;
  const close = () => {
    open.delete(close);
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  open.add(close);
  return { requests, host, at: (path) => `http://${host}${path}`, close };
}

/** Responds with the requested range. */
function part(request, response, bytes, etag) {
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
  response.setHeader("ETag", etag);
  // Otherwise the browser's cache joins ranges of different versions under the ETag of the first.
  response.setHeader("Cache-Control", "no-store");
  if (first === undefined) {
    return void response.writeHead(200, { "Content-Length": bytes.length }).end(bytes);
  }
  const end = Math.min(Number(last), bytes.length - 1);
  response.writeHead(206, {
    "Content-Range": `bytes ${first}-${end}/${bytes.length}`,
    "Content-Length": end + 1 - first,
  });
  response.end(bytes.subarray(Number(first), end + 1));
}

/** Opens the page at `?url=`, then checks that every request went to the site or to one of `hosts`. */
async function at(url, hosts, work, { quiet = true } = {}) {
  const context = await browser.newContext({ acceptDownloads: true });
  const requested = [];
  const errors = [];
  context.on("request", (request) => requested.push(request.url()));
  context.on("weberror", (event) => errors.push(String(event.error())));
  context.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  try {
    const page = await context.newPage();
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.goto(`${site}?url=${encodeURIComponent(url)}`);
    await work(page, requested);
  } finally {
    await context.close();
  }
  const foreign = requested.filter((url) => !url.startsWith(site) && !url.startsWith("blob:") && !url.startsWith("data:"));
  for (const url of foreign) assert.ok(hosts.includes(new URL(url).host), url);
  // The browser prints an error for each failed request.
  if (quiet) assert.deepEqual(errors, [], "errors in the page");
}

/** Confirms the fetch; the button names the host. */
async function agree(page, host) {
  await page.waitForSelector("#address");
  assert.match(await page.textContent("#address-open"), new RegExp(`Fetch from ${host}`));
  await page.click("#address-open");
}

const failure = (page) => page.waitForSelector("#error", { timeout: 90000 }).then(() => page.textContent("#error main"));

test("a checkpoint opens by range requests, after confirmation of its server (core)", async () => {
  const server = await serve({ "/m/a%20b.mdl": example });
  await at(server.at("/m/a%20b.mdl"), [server.host], async (page, requested) => {
    await page.waitForSelector("#address");
    await page.waitForTimeout(300);
    assert.equal(server.requests.length, 0, "requested before confirmation");
    assert.ok(requested.every((url) => url.startsWith(site)));
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    assert.equal(await page.textContent(".top .name"), "a b.mdl");
    const shownText = await page.textContent("#fetched");
    assert.match(shownText, new RegExp(`fetched from ${server.host} in \\d+ requests?`));
    assert.doesNotMatch(await page.textContent(".status"), /nothing leaves/);
    // An address that is not confirmed changes nothing.
    await page.keyboard.press("u");
    await page.keyboard.press("Escape");
    assert.match(await page.textContent("#fetched"), new RegExp(server.host));
    // The comparison names the server, too.
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(fixture("cerebras/v2.10.0/seed.mdl"));
    await page.waitForSelector("#compare");
    assert.match(await page.textContent("#compare .status"), new RegExp(`fetching from ${server.host}`));
    assert.doesNotMatch(await page.textContent("#compare .status"), /nothing leaves/);
    await page.waitForSelector("#save-report:not([disabled])");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#work .row");
    // Values are fetched when their key is selected.
    await page.click(".row >> nth=1");
    await page.waitForSelector(".values, .vals, .insp");
  });
  for (const { method, headers } of server.requests) {
    assert.equal(method, "GET");
    assert.match(headers.range, /^bytes=\d+-\d+$/);
    assert.equal(headers.cookie, undefined);
  }
  await server.close();
});

test("only the needed parts of a large file are fetched", async () => {
  // A file of 64 MB whose structure is 100 bytes.
  const header = Buffer.from(JSON.stringify({ weight: { dtype: "F32", shape: [4096, 4096], data_offsets: [0, 1 << 26] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const large = Buffer.concat([length, header, Buffer.alloc(1 << 26, 1)]);
  const server = await serve({ "/large.safetensors": large });
  await at(server.at("/large.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    // The first bytes, and the last, where other formats have their magic number.
    assert.equal(server.requests.length, 2);
    assert.match(await page.textContent("#fetched"), /131(\.\d)? kB fetched/);
    // Converting needs the whole file, more than was confirmed.
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late) .loss");
    assert.match(await page.textContent(".plan"), new RegExp(`fetches about 67(\\.\\d+)? MB from ${server.host}`));
    assert.ok(await page.isDisabled("#write"));
  });
  await server.close();
});

test("a remote checkpoint converts to the command's output for the file", async () => {
  const server = await serve({ "/gpt_small.mdl": example });
  const output = join(folder, "out.safetensors");
  execFileSync(command, ["convert", `${root}tests/fixtures/cerebras/v2.10.0/gpt_small.mdl`, output, "--lossy"], { stdio: "pipe" });
  const expected = readFileSync(output);
  await at(server.at("/gpt_small.mdl"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "safetensors" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
    await page.waitForSelector("#convert-done");
    const written = readFileSync(await download.path());
    assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
  });
  await server.close();
});

/** Returns the objects of a checkpoint of Cerebras by their paths in a bucket. */
function objects(name) {
  const source = fixture(`cerebras_s3/${name}`);
  const { objects } = JSON.parse(readFileSync(join(source, "objects.json"), "utf8"));
  const path = (key) => `/bucket/${key.split("/").map(encodeURIComponent).join("/")}`;
  return Object.fromEntries(objects.map(({ key, file }) => [path(key), readFileSync(join(source, file))]));
}

for (const address of ["/bucket/gpt_small", "/bucket/gpt_small/", "/bucket/gpt_small/__METADATA__"]) {
  test(`the objects of a Cerebras checkpoint open at ${address}`, async () => {
    const files = objects("gpt_small");
    // A bucket that does not allow listing denies keys that do not exist.
    const server = await serve(files, (_, response, bytes) => !bytes && Boolean(response.writeHead(403).end()));
    const { entries } = JSON.parse(readFileSync(fixture("cerebras_s3/gpt_small.expected.json"), "utf8"));
    const tensors = entries.filter(([, entry]) => entry.kind === "tensor" && entry.nbytes > 0).map(([key]) => key);
    const [key] = tensors;
    await at(
      server.at(address),
      [server.host],
      async (page) => {
        await agree(page, server.host);
        await page.waitForSelector("#work .row");
        assert.match(await page.textContent(".top .badge"), /Cerebras S3/);
        // No tensor is requested before its values are.
        const requested = () => server.requests.map((request) => decodeURIComponent(request.url));
        const isTensor = (url) => tensors.some((key) => url.startsWith(`/bucket/gpt_small/${key}`));
        assert.deepEqual(requested().filter(isTensor), []);
        await page.fill("#filter", key);
        await page.keyboard.press("Enter");
        await page.waitForSelector(".insp .vals td");
        const later = requested().filter(isTensor);
        assert.ok(later.length > 0 && later.every((url) => url.includes(key)), later.join("\n"));
      },
      { quiet: false },
    );
    await server.close();
  });
}

test("keys of Cerebras objects may have empty segments, and dots are explained", async () => {
  const server = await serve({ ...objects("keys_hard"), ...objects("trailing_slash") });
  const opened = (address, then) =>
    at(
      server.at(address),
      [server.host],
      async (page) => {
        await agree(page, server.host);
        await page.waitForSelector("#work .row");
        await then(page);
      },
      { quiet: false },
    );
  await opened("/bucket/keys_hard", async (page) => {
    await page.fill("#filter", "dou//ble");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".insp .vals td");
    assert.ok(server.requests.some((request) => request.url === "/bucket/keys_hard/dou//ble"));
    await page.fill("#filter", "../up");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.body.textContent.includes("request keys with a segment"));
  });
  // The library distinguishes a key that ends in `/` from one that does not.
  await opened("/bucket/trailing_slash/", async (page) => {
    assert.match(await page.textContent(".top .badge"), /Cerebras S3/);
    await page.fill("#filter", "v.x");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".insp .vals td");
    assert.ok(server.requests.some((request) => request.url === "/bucket/trailing_slash//v.x"));
  });
  await server.close();
});

test("the objects of a Cerebras checkpoint convert to the command's output for a copy of them", async () => {
  const files = objects("gpt_small");
  const copy = join(folder, "s3");
  for (const [path, bytes] of Object.entries(files)) {
    const place = join(copy, ...path.split("/").map(decodeURIComponent));
    mkdirSync(dirname(place), { recursive: true });
    writeFileSync(place, bytes);
  }
  const output = join(folder, "objects.safetensors");
  execFileSync(command, ["convert", join(copy, "bucket/gpt_small"), output, "--lossy"], { stdio: "pipe" });
  const expected = readFileSync(output);
  const server = await serve(files);
  await at(
    server.at("/bucket/gpt_small"),
    [server.host],
    async (page) => {
      await agree(page, server.host);
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.getByRole("radio", { name: "safetensors" }).first().click();
      await page.waitForSelector(".plan:not(.late)");
      for (const box of await page.$$(".loss input")) await box.check();
      await page.waitForSelector("#write:not([disabled])");
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("#write")]);
      await page.waitForSelector("#convert-done");
      const written = readFileSync(await download.path());
      assert.ok(written.equals(expected), `${written.length} bytes, expected ${expected.length}`);
    },
    { quiet: false },
  );
  await server.close();
});

test("a remote checkpoint is verified within the fetch limit", async () => {
  const broken = readFileSync(fixture("torch/zip_module_state_dict.pt"));
  const listing = JSON.parse(execFileSync(command, ["show", fixture("torch/zip_module_state_dict.pt"), "emb.weight", "--json"], { encoding: "utf8" }));
  broken[Number(/bytes (\d+)/.exec(listing.entries[0].stored_in)[1])] ^= 1;
  const size = 80 << 20;
  const head = Buffer.from(JSON.stringify({ w: { dtype: "F32", shape: [size / 4], data_offsets: [0, size] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  const large = Buffer.concat([length, head, Buffer.alloc(size)]);
  const server = await serve({ "/broken.pt": broken, "/large.safetensors": large });
  await at(server.at("/broken.pt"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("v");
    await page.click("#verify-begin");
    await page.waitForSelector("#verify-done");
    const shownText = await page.textContent("#verify-done");
    assert.match(shownText, /It is not sound: 1 problem/);
    assert.match(shownText, /stored there: `?emb\.weight/);
  });
  await at(server.at("/large.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("v");
    // The required size and the limit are shown before anything is fetched, with a button that raises the limit.
    const before = server.requests.length;
    assert.match(await page.textContent(".over-limit"), /needs \d+(\.\d+)? MB; the limit is 64\.0 MB/);
    assert.ok(await page.locator("#verify-begin").isDisabled());
    await page.click("#raise-limit");
    assert.equal(server.requests.length, before);
    await page.click("#verify-begin:not([disabled])");
    await page.waitForSelector("#verify-done");
    assert.match(await page.textContent("#verify-done"), /Structure sound|No damage found/);
  });
  await server.close();
});

/** Returns the number of requested bytes. */
const requested = (requests) =>
  requests.reduce((sum, { headers }) => {
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range) ?? [];
    return sum + (first === undefined ? 0 : Number(last) - Number(first) + 1);
  }, 0);

/** Returns a safetensors file of `count` tensors of 1 MiB. */
function megabytes(count) {
  const tensors = {};
  for (let at = 0; at < count; at++) tensors[`layers.${at}.weight`] = { dtype: "F32", shape: [512, 512], data_offsets: [at << 20, (at + 1) << 20] };
  const header = Buffer.from(JSON.stringify(tensors));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, Buffer.alloc(count << 20, 1)]);
}

test("the page does not claim to be offline during requests", async () => {
  let release;
  const pending = new Promise((resolve) => (release = resolve));
  const server = await serve({ "/slow.mdl": example }, (request, response, bytes) => {
    pending.then(() => part(request, response, bytes, '"1"'));
    return true;
  });
  await at(server.at("/slow.mdl"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#loading");
    const shownText = await page.textContent(".status");
    assert.doesNotMatch(shownText, /nothing leaves/);
    assert.match(shownText, new RegExp(`fetching from ${server.host}`));
    release();
    await page.waitForSelector("#work .row");
    // With a local file open, the page is offline.
    await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/seed.mdl"));
    await page.waitForFunction(() => document.title.startsWith("seed.mdl"));
    assert.doesNotMatch(await page.textContent(".status"), /fetching from/);
  });
  await server.close();
});

test("fetch limits are per action and unaffected by other actions", async () => {
  const server = await serve({ "/large.safetensors": megabytes(100) }, (request, response, bytes) => {
    // Slow enough for other actions meanwhile.
    setTimeout(() => part(request, response, bytes, '"1"'), 60);
    return true;
  });
  await at(server.at("/large.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    const opening = requested(server.requests);
    const verify = async () => {
      await page.keyboard.press("v");
      const again = page.getByRole("button", { name: "Verify again" });
      if (await again.isVisible()) await again.click();
      // The worker enforces the limit, even if the button is enabled.
      await page.$eval("#verify-begin", (button) => (button.disabled = false));
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-run");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
    };
    const ended = async () => {
      await page.waitForFunction(() => !/verifying/.test(document.querySelector("#verify").textContent), null, { timeout: 120000 });
      await page.click("#verify");
      const shownText = await page.textContent(".sheet");
      await page.keyboard.press("Escape");
      return shownText;
    };
    await verify();
    for (let at = 0; at < 12; at++) {
      await page.keyboard.press("ArrowDown");
      await page.waitForTimeout(80);
    }
    assert.match(await ended(), /more than the 64\.0 MB that one action may fetch/);
    const fetched = requested(server.requests) - opening;
    assert.ok(fetched < 66e6, `${fetched} bytes were requested`);
    // A conversion that may fetch all it needs.
    await page.keyboard.press("c");
    await page.getByRole("radio", { name: "PyTorch" }).first().click();
    await page.waitForSelector(".plan:not(.late)");
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])");
    const [download] = await Promise.all([page.waitForEvent("download", { timeout: 120000 }), page.click("#write")]);
    await download.path();
    await page.waitForSelector("#convert-done");
    await page.keyboard.press("Escape");
    // Later actions may still fetch 64 MB, and no more.
    await verify();
    assert.match(await ended(), /more than the 64\.0 MB that one action may fetch/);
  });
  await server.close();
});

test("a URL can be typed in the focused dialog, or pasted anywhere (core)", async () => {
  const server = await serve({ "/a.mdl": example });
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(site);
    await page.waitForSelector("#start");
    await page.keyboard.press("u");
    await page.waitForSelector("#address input:focus");
    await page.keyboard.type(server.at("/a.mdl"));
    assert.equal(await page.inputValue("#address input"), server.at("/a.mdl"));
    await page.keyboard.press("Escape");
    await page.waitForSelector("#address", { state: "detached" });
    const paste = (text) =>
      page.evaluate((text) => {
        const clipboardData = new DataTransfer();
        clipboardData.setData("text/plain", text);
        document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
      }, text);
    await paste("not a url");
    await paste(`  ${server.at("/a.mdl")}\n`);
    await page.waitForSelector("#address input:focus");
    assert.equal(server.requests.length, 0, "no request before confirmation");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#work .row");
    // A URL can be pasted on any screen.
    await paste(server.at("/b.mdl"));
    await page.waitForSelector("#address");
    assert.equal(await page.inputValue("#address input"), server.at("/b.mdl"));
  } finally {
    await context.close();
  }
  await server.close();
});

test("a remote scan states its size and offers to raise the limit before fetching", async () => {
  const server = await serve({ "/large.safetensors": megabytes(80) });
  await at(server.at("/large.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    await page.waitForTimeout(500);
    const before = requested(server.requests);
    await page.click("#scan");
    await page.waitForSelector("#limit");
    assert.match(await page.textContent("#limit .ask"), /^Scanning needs 83\.9 MB; the limit is 64\.0 MB\.$/);
    await page.waitForTimeout(300);
    assert.equal(requested(server.requests), before);
    await page.click("#raise-and-scan");
    await page.waitForSelector("#scanned", { timeout: 120000 });
    assert.ok(requested(server.requests) - before >= 80 << 20);
    assert.equal(await page.locator("#fetch-limit option:checked").textContent(), "1 GB");
  });
  await server.close();
});

test("the files of a set are found through its index", async () => {
  for (const [set, index] of [
    ["hf_sharded_safetensors", "model.safetensors.index.json"],
    ["tf/saver_v2_sharded", null],
  ]) {
    const { readdirSync } = await import("node:fs");
    const names = readdirSync(fixture(set)).filter((name) => !name.endsWith(".expected.json"));
    const main = index ?? names.find((name) => name.endsWith(".index"));
    const files = Object.fromEntries(names.map((name) => [`/x/${name}`, readFileSync(join(fixture(set), name))]));
    const server = await serve(files);
    await at(server.at(`/x/${main}?key=1`), [server.host], async (page) => {
      await agree(page, server.host);
      await page.waitForSelector("#work .row");
      const requested = new Set(server.requests.map(({ url }) => url));
      const shards = names.filter((name) => /-of-\d+/.test(name));
      assert.ok(shards.length > 1);
      for (const name of shards) assert.ok(requested.has(`/x/${name}?key=1`), name);
      assert.doesNotMatch(await page.textContent("#work"), /missing/);
    }, { quiet: false });
    await server.close();
  }
});

/** Starts a server that redirects to another one, which has the example. */
async function redirecting(path = "/gpt_small.mdl") {
  const target = await serve({ "/blob": example });
  const server = await serve({}, (request, response) => {
    if (!request.url.startsWith(path)) return false;
    response.writeHead(302, { Location: target.at("/blob") }).end();
    return true;
  });
  return { target, server, close: () => Promise.all([server.close(), target.close()]) };
}

test("the config next to a remote model is fetched for a family conversion", async () => {
  const of = (name) => readFileSync(fixture(`recipes/llama/alias_llamaV2.hf-to-cs2.9/in/${name}`));
  const server = await serve({ "/m/model.safetensors": of("model-00001-of-00001.safetensors"), "/m/config.json": of("config.json") });
  const local = mkdtempSync(join(folder, "local-"));
  writeFileSync(join(local, "model.safetensors"), of("model-00001-of-00001.safetensors"));
  writeFileSync(join(local, "config.json"), of("config.json"));
  execFileSync(command, ["convert-model", join(local, "model.safetensors"), "--to", "cs-2.9"]);
  const requested = () => server.requests.filter(({ url }) => url.endsWith("config.json")).length;
  await at(server.at("/m/model.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    assert.equal(requested(), 0, "not requested yet");
    await page.keyboard.press("c");
    await page.waitForSelector('#family[data-config="config.json"]');
    await page.locator(".famtargets").getByRole("radio", { name: "Cerebras 2.9" }).first().click();
    await page.waitForSelector("#loads .w-good");
    assert.match(await page.textContent("#family-config-name"), /config\.json *next to the checkpoint/);
    await page.waitForSelector("#write:not([disabled])");
    const downloads = [];
    page.on("download", (download) => downloads.push(download));
    await page.click("#write");
    await page.waitForSelector("#convert-done");
    for (let tries = 0; downloads.length < 2 && tries < 100; tries++) await page.waitForTimeout(50);
    for (const download of downloads) {
      const bytes = readFileSync(await download.path());
      assert.ok(bytes.equals(readFileSync(join(local, download.suggestedFilename()))), download.suggestedFilename());
    }
    assert.equal(downloads.length, 2);
    assert.equal(requested(), 1);
  });
  await server.close();
});

test("the config is requested once, whatever options change meanwhile", async () => {
  const of = (name) => readFileSync(fixture(`recipes/llama/alias_llamaV2.hf-to-cs2.9/in/${name}`));
  const config = of("config.json");
  const files = { "/m/model.safetensors": of("model-00001-of-00001.safetensors") };
  let answers = [];
  const server = await serve(files, (request, response) => {
    if (!request.url.endsWith("config.json")) return false;
    answers.push(() => part(request, response, config, '"2"'));
    return true;
  });
  await at(server.at("/m/model.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    for (const name of ["Cerebras", "PyTorch", "safetensors"]) {
      await page.getByRole("radio", { name }).first().click();
      await page.waitForTimeout(400);
    }
    const before = answers.length;
    answers.forEach((answer) => answer());
    answers = { push: (answer) => answer() };
    await page.waitForSelector('#family[data-config="config.json"]');
    await page.waitForSelector("#write:not([disabled])");
    assert.equal(before, 1);
  });
  await server.close();
});

test("a redirect to another server is followed once after confirmation, and shown", async () => {
  const { target, server, close } = await redirecting();
  await at(server.at("/gpt_small.mdl"), [server.host, target.host], async (page) => {
    await agree(page, server.host);
    assert.match(await failure(page), new RegExp(`${server.host} redirects requests for this file to another address`));
    assert.equal(server.requests.length, 1);
    assert.equal(target.requests.length, 0, "requested without confirmation");
    assert.match(await page.textContent("#again"), /Follow it/);
    await page.click("#again");
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#fetched"), new RegExp(`from ${server.host} \\(through ${target.host}\\)`));
    assert.equal(server.requests.length, 2);
    assert.ok(target.requests.length > 1);
  });
  await close();
});

test("redirects from the page's own site need confirmation, too", async () => {
  // The page comes from a server that redirects one of its own files.
  const { target, server, close } = await redirecting("/led.mdl");
  let laterRequests = 0;
  const own = await serve({}, (request, response, bytes, number) => {
    const to = request.url.startsWith("/led.mdl") || (request.url.startsWith("/later.mdl") && laterRequests++ > 0);
    if (to) return void response.writeHead(302, { Location: server.at("/led.mdl") }).end(), true;
    if (request.url.startsWith("/later.mdl")) return void part(request, response, example, '"1"'), true;
    fetch(site + request.url.slice(1)).then(async (answer) => {
      response.writeHead(answer.status, { "Content-Type": answer.headers.get("content-type") ?? "" });
      response.end(Buffer.from(await answer.arrayBuffer()));
    });
    return true;
  });
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(own.at("/?url=led.mdl"));
  assert.match(await failure(page), /redirects requests for this file to another address/);
  assert.equal(server.requests.length + target.requests.length, 0);
  // A file that redirects only after it was opened: its response is rejected. The browser follows redirects of synchronous
  // requests by itself, so the error reports them.
  await page.goto(own.at("/?url=later.mdl"));
  assert.match(await failure(page), /redirects requests for this file to another address/);
  await context.close();
  await own.close();
  await close();
});

test("the fetch limit can be raised where it was reached", async () => {
  // A structure of 70 MB, most of which is spaces.
  const header = JSON.stringify({ weight: { dtype: "U8", shape: [4], data_offsets: [0, 4] } }).padEnd(70e6, " ");
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const server = await serve({ "/a.safetensors": Buffer.concat([length, Buffer.from(header), Buffer.alloc(4)]) });
  await at(server.at("/a.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    assert.match(await failure(page), /more than the 64\.0 MB that one action may fetch/);
    const fetched = () => server.requests.map(({ headers }) => /(\d+)-(\d+)/.exec(headers.range)).reduce((sum, [, a, b]) => sum + Number(b) - a + 1, 0);
    assert.ok(fetched() <= 64e6, `${fetched()} bytes were requested`);
    assert.match(await page.textContent("#again"), /Allow 1 GB/);
    await page.click("#again");
    await page.waitForSelector("#work .row", { timeout: 60000 });
    assert.equal(await page.locator(".limit select").evaluate((select) => select.selectedOptions[0].textContent), "1 GB");
  });
  await server.close();
});

/** Returns a safetensors file of `count` tensors of `each` bytes; each value is its index in the file. */
function weights(count, each) {
  const tensors = {};
  for (let at = 0; at < count; at++) tensors[`layers.${at}.weight`] = { dtype: "F32", shape: [each / 4], data_offsets: [at * each, (at + 1) * each] };
  const header = Buffer.from(JSON.stringify(tensors));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const data = Buffer.alloc(count * each);
  for (let at = 0; at < data.length; at += 4) data.writeFloatLE(at / 4, at);
  return Buffer.concat([length, header, data]);
}

/** Returns a handler that delays each response, and the numbers of concurrent requests: now and at most. */
function delayed(millis) {
  const load = { now: 0, most: 0 };
  const answer = (request, response, bytes) => {
    load.most = Math.max(load.most, ++load.now);
    response.on("close", () => load.now--);
    setTimeout(() => part(request, response, bytes, '"1"'), millis);
    return true;
  };
  return { load, answer };
}

async function startConverting(page) {
  await page.selectOption(".limit select", "no limit");
  await page.keyboard.press("c");
  await page.getByRole("radio", { name: "npz" }).first().click();
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.click("#write:not([disabled])");
}

test("a conversion requests a few parts ahead", async () => {
  const { load, answer } = delayed(50);
  const file = weights(24, 4 << 20);
  const server = await serve({ "/a.safetensors": file }, answer);
  await at(server.at("/a.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    load.most = 0;
    const before = server.requests.length;
    const began = Date.now();
    const download = page.waitForEvent("download", { timeout: 60000 });
    await startConverting(page);
    const written = readFileSync(await (await download).path());
    const took = Date.now() - began;
    const requested = server.requests.slice(before);
    console.log(`100 MB with 50 ms before each answer: ${took} ms, ${requested.length} requests, up to ${load.most} at once`);
    assert.ok(load.most >= 3 && load.most <= 8, `${load.most} requests at once`);
    assert.ok(requested.length < 60, `${requested.length} requests`);
    const expected = join(folder, "ahead.npz");
    const local = join(folder, "ahead.safetensors");
    writeFileSync(local, file);
    execFileSync(command, ["convert", local, expected], { stdio: "pipe" });
    assert.ok(written.equals(readFileSync(expected)));
  });
  await server.close();
});

test("a conversion waiting for its server can be cancelled, and makes no more requests", async () => {
  const { load, answer } = delayed(50);
  let slow = false;
  const server = await serve({ "/a.safetensors": weights(24, 4 << 20) }, (request, response, bytes) => {
    // Requests beyond 8 MB get no response.
    if (slow && /bytes=(\d+)/.exec(request.headers.range)[1] > 8e6) return true;
    return answer(request, response, bytes);
  });
  await at(server.at("/a.safetensors"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    slow = true;
    await startConverting(page);
    await page.getByRole("button", { name: /^Cancel/ }).waitFor();
    await page.waitForTimeout(800);
    const requested = server.requests.length;
    await page.click("#cancel");
    await page.waitForSelector("#write", { timeout: 5000 });
    await page.waitForTimeout(300);
    assert.equal(server.requests.length, requested);
  }, { quiet: false });
  assert.equal(load.now, 0);
  await server.close();
});

test("all values of a remote checkpoint are read after its size is confirmed", async () => {
  const server = await serve({ "/gpt_small.mdl": example });
  const stats = execFileSync(command, ["summary", `${root}tests/fixtures/cerebras/v2.10.0/gpt_small.mdl`, "--to", "json", "--stats"], { encoding: "utf8", maxBuffer: 1 << 26 });
  await at(server.at("/gpt_small.mdl"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    await page.keyboard.press("s");
    await page.getByText(new RegExp(`Fetches about [\\d.]+ [kM]B from ${server.host}`)).waitFor();
    await page.locator("#read-all").click();
    await page.getByText(JSON.parse(stats).fingerprints.content.short).waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: /^JSON/ }).click()]);
    assert.equal(readFileSync(await download.path(), "utf8"), stats);
  });
  await server.close();
});

test("a server without ranges serves small files only", async () => {
  let sent = 0;
  const server = await serve({ "/small.mdl": example }, (request, response, bytes) => {
    if (bytes) return void response.writeHead(200, { "Content-Length": bytes.length }).end(bytes), true;
    response.writeHead(200, { "Content-Length": 10 ** 12 });
    const chunk = Buffer.alloc(1 << 16);
    const more = () => {
      while (!response.destroyed && response.write(chunk)) sent += chunk.length;
    };
    response.on("drain", more);
    more();
    return true;
  });
  await at(server.at("/small.mdl"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#fetched"), /as a whole \(no range support\)/);
  });
  await at(server.at("/large.mdl"), [server.host], async (page) => {
    await agree(page, server.host);
    assert.match(await failure(page), /does not support range requests/);
    await page.waitForTimeout(300);
    assert.ok(sent < 64e6, `${sent} bytes were sent before the page hung up`);
  });
  await server.close();
});

test("servers with invalid responses are reported", async () => {
  const nothing = (request, response) => (response.removeHeader("Access-Control-Allow-Origin"), false);
  const status = (code) => (request, response) => (response.writeHead(code).end(), true);
  const later = (change) => (request, response, bytes, number) => number > 1 && change(request, response, bytes);
  for (const [answer, expected] of [
    [nothing, /does not let other sites read its files \(CORS\)/],
    [status(401), /requires a login for this file \(401\)/],
    [status(403), /denies access to this file \(403\)/],
    [status(404), /has no such file \(404\)/],
    [(request, response) => (response.writeHead(429, { "Retry-After": "3600" }).end(), true), /received too many requests \(429\)/],
    [status(503), /had an error \(503\)/],
    [later((request, response, bytes) => (part(request, response, bytes, '"2"'), true)), /has changed since it was opened/],
    [later((request, response, bytes) => (part(request, response, bytes.subarray(0, -1), '"1"'), true)), /has changed since it was opened/],
    [later((request, response) => (response.writeHead(206, { "Content-Length": 1000, "Content-Range": `bytes ${request.headers.range.slice(6)}/${example.length}` }).write("short", () => response.destroy()), true)), /could not be reached|and closed the connection/],
    [later((request, response) => (response.writeHead(206, { "Content-Range": `bytes ${request.headers.range.slice(6)}/${example.length}` }).end("short"), true)), /sent 5 of \d+ bytes and closed the connection/],
    [later(status(404)), /has no such file \(404\)/],
  ]) {
    const server = await serve({ "/a.mdl": example }, answer);
    await at(server.at("/a.mdl"), [server.host], async (page) => {
      await agree(page, server.host);
      assert.match(await failure(page), expected);
    }, { quiet: false });
    await server.close();
  }
});

test("trying again is offered after an error of the server, not for a file that is not a checkpoint", async () => {
  const pointer = Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${"0".repeat(64)}\nsize 12345\n`);
  for (const [answer, retries] of [
    [() => false, 0],
    [(request, response) => (response.writeHead(503).end(), true), 1],
  ]) {
    const server = await serve({ "/a.safetensors": pointer }, answer);
    await at(server.at("/a.safetensors"), [server.host], async (page) => {
      await agree(page, server.host);
      await failure(page);
      assert.equal(await page.locator("#again").count(), retries);
    }, { quiet: false });
    await server.close();
  }
});

test("a failed request is retried", async () => {
  const server = await serve({ "/a.mdl": example }, (request, response, bytes, number) => {
    if (number % 2 === 0) return false;
    response.writeHead(503).end();
    return true;
  });
  await at(server.at("/a.mdl"), [server.host], async (page) => {
    await agree(page, server.host);
    await page.waitForSelector("#work .row");
  }, { quiet: false });
  await server.close();
});

test("the page's own site needs no confirmation; invalid URLs are reported", async () => {
  await at("examples/gpt_small.mdl", [], async (page) => {
    await page.waitForSelector("#work .row");
    assert.match(await page.textContent("#fetched"), /fetched from/);
  });
  for (const [url, expected] of [
    ["https://huggingface.co/gpt2", /is not that of a repository, a folder or a file/],
    ["ftp://example.org/a.pt", /begins with https:\/\/ or http:\/\//],
    ["https://me:secret@example.org/a.pt", /user name or password/],
  ]) {
    await at(url, [], async (page) => {
      await page.waitForSelector("#address .why");
      assert.match(await page.textContent("#address"), expected);
      assert.ok(await page.isDisabled("#address-open"));
    });
  }
  await at("https://hf.co/a/b/blob/main/model.safetensors", [], async (page) => {
    await page.waitForSelector("#address");
    assert.match(await page.textContent("#address-open"), /Fetch from huggingface.co/);
  });
});
