// Verification: the page finds what the command finds, in the same words.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, command, drop, fixture, inWorker, launch, withPage } from "./harness.mjs";
import { denseCheckpoint, sparseCheckpoint } from "./make.mjs";

const zip = fixture("torch/zip_module_state_dict.pt");
const chunks = fixture("hdf5/filter_fletcher32_l.h5");

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-verify-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Returns the command's report as JSON and as text, and whether it found no errors. */
function runCommand(...args) {
  const run = (...more) => spawnSync(command, ["verify", ...args, ...more], { encoding: "utf8", maxBuffer: 1 << 26 });
  const { status, stdout } = run("--json");
  return { sound: status === 0, json: stdout, text: run().stdout };
}

/** Returns the command's entry of a tensor, with its location in the file. */
function entryOf(file, key) {
  const run = spawnSync(command, ["show", file, key, "--json"], { encoding: "utf8" });
  return JSON.parse(run.stdout).entries[0];
}

/** Writes a copy of a file with one changed byte; returns its path. */
function broken(file, name, at) {
  const bytes = readFileSync(file);
  bytes[at] ^= 0x10;
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

async function open(page, file) {
  await page.setInputFiles("#choose-files", file);
  await page.waitForSelector(`#work[data-name*="${basename([file].flat()[0], ".index")}"]`);
  await page.keyboard.press("v");
  await page.waitForSelector("#verify-form");
}

/** Verifies, and compares the shown and the saved report with the command's. */
async function verify(page, ...args) {
  await page.click("#verify-begin");
  await page.waitForSelector("#verify-done");
  const expected = runCommand(...args);
  const shown = (await page.textContent("#verify-done")).replaceAll("`", "");
  for (const line of expected.text.trim().split("\n")) {
    for (const part of line.split(/ {2,}/)) {
      const words = part.trim().replaceAll("`", "");
      assert.ok(shown.toLowerCase().includes(words.toLowerCase()), `${words}\nis not in\n${shown}`);
    }
  }
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#verify-save")]);
  assert.equal(readFileSync(await download.path(), "utf8"), expected.json);
  return { ...expected, shown };
}

test("a sound file has no errors", async () => {
  await withPage(browser, async (page) => {
    for (const file of [zip, chunks, fixture("cerebras/v2.10.0/gpt_small.mdl"), fixture("tf/tf2_checkpoint/ckpt-1.index")]) {
      const files = file.endsWith(".index") ? [file, file.replace("index", "data-00000-of-00001")] : [file];
      await open(page, files);
      const { sound, shown } = await verify(page, file);
      assert.ok(sound);
      assert.match(shown, /No damage found|Structure sound/);
      await page.keyboard.press("Escape");
      assert.match(await page.textContent("#verify"), /no damage found|structure sound/);
    }
  });
});

test("a flipped byte in a zip member or chunk is reported by key (core)", async () => {
  await withPage(browser, async (page) => {
    const location = entryOf(zip, "emb.weight").stored_in;
    const member = broken(zip, "member.pt", Number(/bytes (\d+)/.exec(location)[1]) + 3);
    await open(page, member);
    const first = await verify(page, member);
    assert.ok(!first.sound);
    assert.match(first.shown, /It is not sound: 1 problem/);
    assert.match(first.shown, /stored there: `?emb\.weight/);
    await page.keyboard.press("Escape");

    const key = JSON.parse(runCommand(chunks).json).checksums["Fletcher-32 (chunks)"] > 0;
    assert.ok(key);
    const bytes = readFileSync(chunks);
    // The last chunk ends the file.
    const chunk = broken(chunks, "chunk.h5", bytes.length - 20);
    await open(page, chunk);
    const second = await verify(page, chunk);
    assert.ok(!second.sound);
    const [problem] = JSON.parse(second.json).problems;
    assert.ok(problem.key);
    // A click on the key selects its row.
    await page.locator("#verify-done").getByRole("button", { name: problem.key }).first().click();
    await page.waitForSelector("#verify-done", { state: "detached" });
    assert.match(await page.textContent(".insp"), new RegExp(problem.key));
    assert.match(await page.textContent("#verify"), /not sound/);
  });
});

test("NaN and Inf are counted, and are not an error", async () => {
  await withPage(browser, async (page) => {
    const data = Buffer.alloc(16);
    [1, NaN, Infinity, NaN].forEach((value, at) => data.writeFloatLE(value, at * 4));
    const head = Buffer.from(JSON.stringify({ "layer.weight": { dtype: "F32", shape: [2, 2], data_offsets: [0, 16] } }));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(head.length));
    const path = join(folder, "nan.safetensors");
    writeFileSync(path, Buffer.concat([length, head, data]));
    await open(page, path);
    const { sound, shown } = await verify(page, path);
    assert.ok(sound);
    assert.match(shown, /layer\.weight2 NaN, 1 infinite of 4 elements, first at \[0, 1\]/);
    assert.match(shown, /no checksums in this format: changed values can.t be detected/);
    // With `--finite`, they are errors.
    await page.getByRole("button", { name: "Verify again" }).click();
    await page.check("#finite");
    const finite = await verify(page, path, "--finite");
    assert.ok(!finite.sound);
    assert.match(finite.shown, /It is not finite/);
    assert.match(finite.shown, /--finite/);
  });
});

test("a chosen or dropped manifest reports whether the checkpoint is unchanged", async () => {
  await withPage(browser, async (page) => {
    const manifest = join(folder, "model.manifest");
    spawnSync(command, ["manifest", zip, "-o", manifest]);
    await open(page, zip);
    await page.setInputFiles("#choose-manifest", manifest);
    const same = await verify(page, zip, "--manifest", manifest);
    assert.ok(same.sound);
    assert.match(same.shown, /entries match/);
    assert.match(same.shown, /--manifest model\.manifest/);
    // Another manifest is dropped on the sheet.
    const other = readFileSync(manifest, "utf8").replace("float32", "float16");
    const second = join(folder, "other.manifest");
    writeFileSync(second, other);
    await drop(page, ".sheet", [{ name: "other.manifest", bytes: Buffer.from(other) }]);
    await page.getByText("other.manifest").waitFor();
    const changed = await verify(page, zip, "--manifest", second);
    assert.ok(!changed.sound);
    assert.match(changed.shown, /expected float16; found float32/);
    // A file that is not a manifest is refused.
    await drop(page, ".sheet", [{ name: "none.txt", bytes: Buffer.from("some text\n") }]);
    await page.click("#verify-begin");
    await page.waitForSelector(".runbody[role=alert]");
    assert.match(await page.textContent(".sheet"), /not a manifest: line 1 does not have four columns/);
  });
});

/** Reports the sizes of what the browser hashes. Runs in the worker. */
function reportDigests() {
  const sizes = new BroadcastChannel("digests");
  const digest = SubtleCrypto.prototype.digest;
  SubtleCrypto.prototype.digest = function (...given) {
    sizes.postMessage(given[1].byteLength);
    return digest.apply(this, given);
  };
}

/** Removes the browser's hashes, as on a page whose address is not secure. Runs in the worker. */
function withoutDigests() {
  Object.defineProperty(Crypto.prototype, "subtle", { value: undefined });
}

test("the browser hashes large tensors; without its hashes the result is the same", async () => {
  const path = join(folder, "dense.safetensors");
  denseCheckpoint(path, 3, 5);
  const manifest = join(folder, "dense.manifest");
  spawnSync(command, ["manifest", path, "-o", manifest]);
  for (const [script, expected] of [[reportDigests, [8 << 20, 8 << 20, 8 << 20]], [withoutDigests, []]]) {
    await withPage(browser, async (page) => {
      await page.addInitScript(() => {
        window.digests = [];
        window.channel = new BroadcastChannel("digests");
        window.channel.onmessage = ({ data }) => window.digests.push(data);
      });
      await inWorker(page, script);
      await open(page, path);
      await page.setInputFiles("#choose-manifest", manifest);
      const { sound, shown } = await verify(page, path, "--manifest", manifest);
      assert.ok(sound);
      assert.match(shown, /entries match/);
      await becomes(() => page.evaluate(() => window.digests), expected);
    });
  }
});

test("verification shows progress in the status bar, and can be stopped", async () => {
  const path = join(folder, "large.pt");
  sparseCheckpoint(path, 8, 250_000_000);
  await withPage(browser, async (page) => {
    await open(page, path);
    assert.match(await page.textContent("#verify-begin"), /8\.00 GB/);
    await page.click("#verify-begin");
    await page.waitForFunction(() => Number(document.querySelector("#verify-run [role=progressbar]")?.ariaValueNow) > 0);
    await page.waitForFunction(() => /[MG]B\/s/.test(document.querySelector("#verify-run .runhead")?.textContent ?? ""));
    // The page still responds.
    await page.getByRole("button", { name: "Browse meanwhile" }).click();
    await page.waitForFunction(() => /verifying \d+ %/.test(document.querySelector("#verify").textContent));
    await page.keyboard.press("l");
    await page.keyboard.press("j");
    await page.waitForFunction(() => document.querySelector(".insp").textContent.includes("stored in"));
    await page.click("#verify");
    await page.click("#cancel");
    await page.waitForSelector("#verify-form");
    assert.equal(await page.locator("#verify-run").count(), 0);
    // Verification can be restarted, and stopped with Escape.
    await page.click("#verify-begin");
    await page.waitForSelector("#verify-run");
    await page.keyboard.press("Escape");
    await page.waitForSelector("#verify-form");
    await page.keyboard.press("Escape");
    await page.waitForSelector(".sheet", { state: "detached" });
  });
});
