// Repositories of the Hugging Face Hub: opened as one set at one commit, with a token that goes to the Hub only, and with
// a sentence for each refusal.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { becomes, fixture, site } from "./harness.mjs";
import { COMMIT, STRANGER, TOKEN, launchHub, startHub } from "./hub.mjs";
import { floats } from "./make.mjs";

/** Returns the files of a folder of fixtures. */
function files(name) {
  const folder = fixture(`folders/${name}`);
  return Object.fromEntries(readdirSync(folder).map((file) => [file, readFileSync(`${folder}/${file}`)]));
}

const tiny = { ...files("llama_three_shards"), "README.md": Buffer.from("# Tiny\n") };
// The second tensor is beyond the first request.
const one = { "config.json": Buffer.from('{"model_type": "llama"}'), "model.safetensors": floats({ pad: Array(90_000).fill(0), "layers.0.weight": [1, 2.5, 3] }) };
const several = { "a.safetensors": floats({ w: [1] }), "b.safetensors": floats({ w: [2] }), "sub/c.safetensors": floats({ w: [3] }), "notes.txt": Buffer.from("x") };

let hub;
let browser;
before(async () => {
  hub = await startHub({ "org/tiny": tiny, "org/gated": one, "org/private": one, "org/several": several, "org/broken": files("missing_shard"), "org/changed": one });
  browser = await launchHub(hub);
});
after(async () => {
  await browser?.close();
  await hub?.close();
});

/** Opens an address in a new tab by `?url=`, and agrees to fetch it. Then checks where the token went. */
async function at(address, work, token = "") {
  hub.requests.length = 0;
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const errors = [];
  context.on("weberror", (event) => errors.push(String(event.error())));
  try {
    const page = await context.newPage();
    await page.goto(`${site}?url=${encodeURIComponent(address)}`);
    await agree(page, token);
    await work(page);
  } finally {
    await context.close();
  }
  assert.deepEqual(errors, []);
  for (const { name, path, token } of hub.requests) {
    if (name === "storage") assert.equal(token, "", `a token reached the storage: ${path}`);
    assert.ok(!path.includes("hf_"), path);
  }
}

async function agree(page, token = "") {
  await page.waitForSelector("#address");
  assert.equal(await page.textContent("#address-open"), "Fetch from huggingface.co");
  if (token) await page.fill("#address input[type=password]", token);
  await page.click("#address-open");
}

const failure = (page) => page.waitForSelector("#error").then(() => page.innerText("#error main"));
const facts = (page) => page.innerText("#checkpoint-facts");

test("a repository opens as one set, with its config, at one commit (core)", async () => {
  await at("hf://org/tiny", async (page) => {
    await page.waitForSelector("#work .row");
    assert.equal(await page.textContent("#shards"), "3 shards");
    const shown = await facts(page);
    for (const text of ["org/tiny", "main", COMMIT]) assert.ok(shown.includes(text), shown);
    const paths = hub.requests.map(({ path }) => path);
    assert.equal(paths.filter((path) => path.includes("/revision/")).length, 1);
    for (const path of paths.filter((path) => path.includes("/resolve/"))) assert.ok(path.includes(`/resolve/${COMMIT}/`), path);
    assert.ok(paths.some((path) => path.endsWith("/config.json")) && !paths.some((path) => path.includes("README")), paths.join(" "));
    // The Hub is requested without a range, and the storage with ranges.
    for (const { name, path, range } of hub.requests) {
      if (name === "hub" && path.includes("/resolve/")) assert.equal(range, "", path);
    }
    assert.ok(hub.requests.some(({ name, range }) => name === "storage" && range !== ""));
    // The link names the commit, because the branch may move on.
    await page.waitForURL((url) => url.searchParams.get("url") === `hf://org/tiny@${COMMIT}`);
    // The number of heads is in the config only.
    await page.locator('[title*="config.json"]').first().waitFor({ state: "attached" });
  });
});

test("values are read from the storage, by a synchronous request, too", async () => {
  await at("https://huggingface.co/org/private/blob/main/model.safetensors", async (page) => {
    await page.waitForSelector("#work .row");
    await page.fill("#filter", "layers.0.weight");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".insp .vals td");
    assert.match(await page.textContent(".insp .vals"), /2\.5/);
  }, TOKEN);
});

test("pages of a repository, its pull requests and its folders are understood", async () => {
  for (const [address, repository, revision] of [
    ["https://huggingface.co/org/tiny", "org/tiny", "main"],
    ["huggingface.co/org/tiny/tree/main", "org/tiny", "main"],
    ["https://hf.co/org/tiny/tree/refs%2Fpr%2F1", "org/tiny", "refs/pr/1"],
    ["hf://org/tiny@refs/pr/1/model.safetensors.index.json", "org/tiny", "refs/pr/1"],
    ["hf://org/several/sub", "org/several", "main"],
  ]) {
    await at(address, async (page) => {
      await page.waitForSelector("#work .row");
      const shown = await facts(page);
      for (const text of [repository, revision, COMMIT]) assert.ok(shown.includes(text), `${address}: ${shown}`);
    });
  }
});

test("a pasted page or id fills the dialog", async () => {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  const page = await context.newPage();
  await page.goto(site);
  await page.waitForSelector("#start");
  for (const [text, address] of [
    ["https://huggingface.co/org/tiny/tree/main", "https://huggingface.co/org/tiny/tree/main"],
    ["hf://org/tiny@v1", "hf://org/tiny@v1"],
    ["org/tiny", "hf://org/tiny"],
  ]) {
    await page.evaluate((text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      window.dispatchEvent(new ClipboardEvent("paste", { clipboardData, cancelable: true }));
    }, text);
    await becomes(() => page.inputValue("#address input[type=url]"), address);
    await page.keyboard.press("Escape");
    await page.waitForSelector("#address", { state: "detached" });
  }
  await context.close();
});

test("a token opens a gated repository, and is kept in memory only (core)", async () => {
  await at("hf://org/gated", async (page) => {
    assert.match(await failure(page), /org\/gated is gated/);
    await page.click("#again");
    await agree(page, TOKEN);
    await page.waitForSelector("#work .row");
    assert.ok(hub.requests.some(({ name, token }) => name === "hub" && token === `Bearer ${TOKEN}`));
    const kept = await page.evaluate(async () => {
      const databases = await indexedDB.databases();
      const stored = [localStorage, sessionStorage].map((storage) => JSON.stringify({ ...storage }));
      return [location.href, JSON.stringify(history.state), ...stored, JSON.stringify(databases), document.documentElement.outerHTML].join("\n");
    });
    assert.ok(!kept.includes(TOKEN), kept);
    // A new tab has no token.
    await page.reload();
    await agree(page);
    assert.match(await failure(page), /org\/gated is gated/);
  });
});

test("each refusal has a sentence, and what to do (core)", async () => {
  for (const [address, token, sentence, advice] of [
    ["hf://org/gated", "", "org/gated is gated: its files need an account with access", /Ask for access at https:\/\/huggingface\.co\/org\/gated, then set “Token”/],
    ["hf://org/gated", STRANGER, "org/gated is gated, and the account of the token has no access", /Ask for access/],
    ["hf://org/private", "", "huggingface.co has no public repository org/private", /If it is private, set “Token”/],
    ["hf://org/private", STRANGER, "huggingface.co has no repository org/private, or the account of the token has no access to it", /permissions of the token/],
    ["hf://org/missing", "", "huggingface.co has no public repository org/missing", /Check its name/],
    ["hf://org/tiny", "hf_expired", "huggingface.co does not accept the token", /has expired/],
    ["hf://org/tiny@v9", "", "org/tiny has no branch, tag or commit v9", /tree\/main/],
    ["hf://org/tiny/no.safetensors", "", "There is no such file or folder at this revision", /name of a file/],
    ["hf://org/several", "", "There are 3 checkpoints here: a.safetensors, b.safetensors, sub/c.safetensors", /Add the name of a file/],
    ["hf://org/limited", "", "huggingface.co received too many requests from you", /Try again in a few minutes, or set “Token”/],
  ]) {
    await at(address, async (page) => {
      const shown = await failure(page);
      assert.ok(shown.toLowerCase().includes(sentence.toLowerCase()), `${address}: ${shown}`);
      assert.match(shown, advice);
      await page.click("#again");
      assert.equal(await page.inputValue("#address input[type=url]"), address);
    }, token);
  }
});

test("a repository is checked by the rules of the command", async () => {
  for (const [address, whole, rule] of [["hf://org/tiny", "true", null], ["hf://org/broken", "false", "shard-missing"]]) {
    await at(address, async (page) => {
      await page.waitForSelector("#work, #error");
      if (await page.$("#error")) return assert.fail(await page.innerText("#error"));
      await page.click('.status [data-check="folder"]');
      await page.waitForSelector("#folder-verdict");
      assert.equal(await page.getAttribute("#folder-verdict", "data-whole"), whole);
      if (rule) await page.waitForSelector(`[data-rule="${rule}"]`);
      for (const { name, path, range } of hub.requests) {
        if (name === "hub" && path.includes("/resolve/")) assert.equal(range, "", path);
      }
    });
  }
});

test("verifying compares fetched files with the hashes that the Hub lists", async () => {
  for (const [address, count, problem] of [["hf://org/tiny", "3 SHA-256 of whole files", ""], ["hf://org/changed", "1 SHA-256 of whole files", "the contents are not those that the Hub lists for the file"]]) {
    await at(address, async (page) => {
      await page.waitForSelector("#work .row");
      hub.requests.length = 0;
      await page.keyboard.press("v");
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-done");
      const shown = await page.innerText("#verify-done");
      assert.ok(shown.includes(count) && shown.includes(problem), shown);
      assert.equal(shown.includes("not sound"), problem !== "", shown);
      // The bytes of a large file are fetched once: they are hashed as they are verified.
      const fetched = hub.requests.filter(({ name, range }) => name === "storage" && range).map(({ range }) => range);
      if (problem) assert.equal(fetched.length, 1, fetched.join(" "));
    });
  }
});
