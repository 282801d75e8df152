// Model families in the convert sheet: the page writes what `statelens convert-model` writes.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, command, drop, fixture, launch, withPage } from "./harness.mjs";
import { floats, safetensors } from "./make.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SHARDS = "recipes/llama/inv_freq_bin_2shards.hf-to-cs2.9/in";

let browser;
let folder;
let made;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-families-"));
  // A Cerebras checkpoint, written by the command.
  run("convert-model", fixture(SHARDS), "--to", "cs-2.9", "-o", folder);
  made = readdirSync(folder).sort();
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Returns the command's output. */
function run(...words) {
  return execFileSync(command, words, { stdio: "pipe", encoding: "utf8" });
}

/** Returns the files of a folder in the form that `drop` takes. */
function filesOf(path, only = () => true) {
  return readdirSync(path).filter(only).map((name) => ({ name, bytes: readFileSync(join(path, name)) }));
}

/** Removes the save dialog: output is downloaded. */
async function withoutDialog(page) {
  await page.addInitScript(() => delete window.showSaveFilePicker);
  await page.reload();
  await page.waitForSelector("#start");
}

/** Opens files, and then the convert sheet. */
async function sheet(page, files) {
  await withoutDialog(page);
  await drop(page, "body", files);
  await page.waitForSelector("#work .row");
  await page.keyboard.press("c");
  await page.waitForSelector("#family");
}

const target = (page, name) => page.locator(".famtargets").getByRole("radio", { name }).first().click();

/** Writes, and returns the downloaded files by name. */
async function written(page, count, button = "#write") {
  await page.waitForSelector(`${button}:not([disabled])`);
  const downloads = [];
  page.on("download", (download) => downloads.push(download));
  await page.click(button);
  await page.waitForSelector("#convert-done");
  for (let tries = 0; downloads.length < count && tries < 100; tries++) await page.waitForTimeout(50);
  const files = {};
  for (const download of downloads) files[download.suggestedFilename()] = readFileSync(await download.path());
  return files;
}

const rows = (page) =>
  page.$$eval("#family-table tbody tr:not(.gap, .kh)", (rows) => rows.map((row) => [row.cells[0].title, row.cells[2].title, row.cells[3].title]));

test("a sharded Llama converts to Cerebras as the command writes it, and loads (core)", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    const recognised = await page.textContent("#family .looks");
    assert.match(recognised, /Looks like LLaMA · Hugging Face/);
    assert.match(recognised, /confirmed by keys and config\.json/);
    await target(page, "Cerebras 2.9");
    await page.waitForSelector("#loads .w-good");
    assert.match(await page.textContent("#loads .answer"), /Yes: (\d+) of \1 keys/);
    const table = await rows(page);
    const row = (end) => table.find(([old]) => old.endsWith(end));
    assert.deepEqual(row("self_attn.q_proj.weight"), [
      "model.layers.0–1.self_attn.q_proj.weight",
      "transformer_decoder.layers.0–1.self_attn.proj_q_dense_layer.weight",
      "rotary order",
    ]);
    assert.equal(row("mlp.up_proj.weight")[2], "copy");
    assert.deepEqual(row("rotary_emb.inv_freq").slice(1), ["", "left out"]);
    const marked = await page.$$eval("#family-config .cfg:last-child mark", (lines) => lines.map((line) => line.textContent.trim()));
    assert.ok(marked.some((line) => line.startsWith("num_heads:")), marked.join("\n"));
    assert.ok(!marked.some((line) => line.startsWith("hidden_size:")), marked.join("\n"));
    const files = await written(page, 2);
    assert.deepEqual(Object.keys(files).sort(), ["config_to_cs-2.9.yaml", "pytorch_model_to_cs-2.9.mdl"]);
    for (const name of made) assert.ok(files[name].equals(readFileSync(join(folder, name))), name);
    await page.click("#open-result");
    await page.waitForFunction(() => document.title.startsWith("pytorch_model_to_cs-2.9.mdl"));
  });
});

test("one target is reachable by Tab, also if the chosen one is in the list of releases", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    const stops = '[role="radiogroup"][aria-label="Target"] [role="radio"][tabindex="0"]';
    assert.deepEqual(await page.locator(stops).count(), 1);
    await target(page, "Cerebras 2.9");
    await page.waitForSelector(`.famtargets ${stops.split(" ").at(-1)}`);
    assert.equal(await page.locator(stops).count(), 1);
    await page.selectOption("#family-release", { index: 1 });
    await page.waitForSelector(".famtargets .pick.on");
    assert.equal(await page.locator(stops).count(), 1);
  });
});

for (const [kind, flags] of [
  ["safetensors", ["--export-safetensors"]],
  ["PyTorch .bin", []],
]) {
  test(`a Cerebras Llama converts to Hugging Face as ${kind}`, async () => {
    const output = join(folder, `back ${kind}`);
    run("convert-model", join(folder, "pytorch_model_to_cs-2.9.mdl"), "--to", "hf", "-o", output, ...flags, "--config", join(folder, "config_to_cs-2.9.yaml"));
    const expected = filesOf(join(output, "pytorch_model_to_cs-2.9_to_hf"));
    await withPage(browser, async (page) => {
      await sheet(page, filesOf(folder, (name) => made.includes(name)));
      assert.match(await page.textContent("#family .looks"), /Looks like LLaMA · Cerebras 2\.9/);
      await target(page, "Hugging Face");
      await page.waitForSelector("#family-keys");
      await page.locator('[aria-label^="Files"]').getByRole("radio", { name: kind }).first().click();
      await page.waitForSelector("#loads .w-good");
      const files = await written(page, expected.length);
      assert.deepEqual(Object.keys(files).sort(), expected.map(({ name }) => name).sort());
      for (const { name, bytes } of expected) assert.ok(files[name].equals(bytes), name);
    });
  });
}

test("optimizer moments are converted with their parameters in both directions, as by the command", async () => {
  const trained = fixture("trainer/gpt2");
  const dir = join(folder, "trained");
  run("convert-model", trained, "--to", "cs-2.9", "-o", dir, "--with-optimizer");
  const model = "pytorch_model_to_cs-2.9";
  run("convert-model", join(dir, `${model}.mdl`), "--to", "hf", "-o", join(folder, "untrained"), "--with-optimizer", "--config", join(dir, "config_to_cs-2.9.yaml"));
  const convert = async (page, files, name, expected) => {
    await sheet(page, files);
    await target(page, name);
    if (name === "Hugging Face") {
      await page.waitForSelector("#family-keys");
      await page.locator('[aria-label^="Files"]').getByRole("radio", { name: "PyTorch .bin" }).first().click();
    }
    await page.check("#family-optimizer");
    await page.waitForSelector('.cmdline:has-text("--with-optimizer")');
    const [, before, after] = (await page.textContent(".plan:not(.late) .kv")).match(/^keys([\d\s,]+) become ([\d\s,]+)/);
    assert.ok((await page.textContent(".counts")).includes(`${before} keys become ${after.trim()}`), `${before} become ${after}`);
    const files_ = await written(page, expected.length);
    assert.deepEqual(Object.keys(files_).sort(), expected.map(({ name }) => name).sort());
    for (const { name, bytes } of expected) assert.ok(files_[name].equals(bytes), name);
  };
  const trainers = filesOf(trained).sort((a) => (a.name === "optimizer.pt" ? 1 : -1));
  await withPage(browser, (page) => convert(page, trainers, "Cerebras 2.9", filesOf(dir)));
  await withPage(browser, (page) => convert(page, filesOf(dir), "Hugging Face", filesOf(join(folder, "untrained", `${model}_to_hf`))));
});

test("if the optimizer can't be written, no weights stay in the browser", async () => {
  const dir = join(folder, "to fail");
  run("convert-model", fixture("trainer/gpt2"), "--to", "cs-2.9", "-o", dir, "--with-optimizer");
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(dir));
    await target(page, "Hugging Face");
    await page.waitForSelector("#family-keys");
    await page.check("#family-optimizer");
    await page.waitForSelector('.cmdline:has-text("--with-optimizer")');
    await page.waitForSelector("#write:not([disabled])");
    // Writing the second file fails.
    await page.workers()[0].evaluate(() => {
      const own = FileSystemFileHandle.prototype.createSyncAccessHandle;
      let files = 0;
      FileSystemFileHandle.prototype.createSyncAccessHandle = function (...words) {
        files += 1;
        const full = () => Promise.reject(new DOMException("no room", "QuotaExceededError"));
        return files > 1 ? full() : own.apply(this, words);
      };
    });
    await page.click("#write");
    await page.waitForSelector("#convert-failed");
    const left = await page.evaluate(async () => {
      const root = await navigator.storage.getDirectory();
      const names = [];
      for await (const name of (await root.getDirectoryHandle("statelens")).keys()) names.push(name);
      return names;
    });
    assert.deepEqual(left, []);
  });
});

for (const [layout, from, opens] of [
  ["meta", SHARDS, (page, dir) => drop(page, "body", filesOf(dir))],
  // Each rank has a folder.
  ["megatron", "trainer/gpt2", (page, dir) => page.setInputFiles("#choose-folder", dir)],
]) {
  test(`the files of two ranks of ${layout} are joined, as the command joins them`, async () => {
    const output = join(folder, `ranks of ${layout}`);
    run("convert-model", fixture(from), "--to", layout, "--ranks", "2", "-o", output);
    const dir = join(output, `pytorch_model_to_${layout}`);
    copyFileSync(fixture(`${from}/config.json`), join(dir, "config.json"));
    run("convert-model", dir, "--to", "hf", "--export-safetensors", "-o", output);
    const expected = filesOf(join(output, `pytorch_model_to_${layout}_to_hf`));
    await withPage(browser, async (page) => {
      await withoutDialog(page);
      await opens(page, dir);
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.waitForSelector('#family .looks:has-text("file names")');
      assert.match(await page.textContent("#family .looks"), new RegExp(`\u00b7 ${layout}.*confirmed`));
      await target(page, "Hugging Face");
      await page.waitForSelector("#family-table");
      const files = await written(page, expected.length);
      assert.deepEqual(Object.keys(files).sort(), expected.map(({ name }) => name).sort());
      for (const { name, bytes } of expected) assert.ok(files[name].equals(bytes), name);
    });
  });
}

const GPT_OSS = [
  "embedding.weight",
  "unembedding.weight",
  "norm.scale",
  ...["attn.norm.scale", "attn.qkv.bias", "attn.sinks", "attn.out.bias", "mlp.gate.bias", "mlp.mlp1_weight.blocks"].map((key) => `block.0.${key}`),
];

test("gpt-oss in OpenAI's files is recognised and converts to Hugging Face and back, as by the command", async () => {
  const dir = join(folder, "gpt-oss");
  mkdirSync(dir);
  const config = JSON.stringify({ num_attention_heads: 2, num_key_value_heads: 1 });
  writeFileSync(join(dir, "model.safetensors"), safetensors(GPT_OSS));
  writeFileSync(join(dir, "config.json"), config);
  const source = filesOf(dir);
  run("convert-model", dir, "--to", "hf", "--export-safetensors", "-o", dir);
  const made = join(dir, "model_to_hf");
  const expected = filesOf(made);
  writeFileSync(join(made, "config.json"), config);
  const theirs = filesOf(made);
  run("convert-model", made, "--to", "openai", "--export-safetensors", "-o", dir);
  const [name] = readdirSync(dir).filter((name) => name.endsWith("_to_openai"));
  const back = filesOf(join(dir, name));
  const convert = async (page, name, files) => {
    await target(page, name);
    await page.waitForSelector("#family-keys");
    const saved = await written(page, files.length);
    assert.deepEqual(Object.keys(saved).sort(), files.map(({ name }) => name).sort());
    for (const { name, bytes } of files) assert.ok(saved[name].equals(bytes), name);
  };
  await withPage(browser, async (page) => {
    await sheet(page, source);
    await page.waitForSelector('#family[data-model="gpt-oss"]');
    assert.match(await page.textContent("#family .looks"), /Looks like gpt-oss in OpenAI's files \u00b7 openai/);
    await convert(page, "Hugging Face", expected);
  });
  await withPage(browser, async (page) => {
    await sheet(page, theirs);
    await page.selectOption("#family-model", "gpt-oss");
    await page.waitForSelector(".famtargets");
    await convert(page, "openai", back);
  });
});

test("conversions that the page can't write name the command", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    await page.selectOption("#family-model", "llama-meta");
    await page.waitForSelector("#family .refused");
    assert.match(await page.textContent("#family .refused"), /statelens convert-model CKPT --to meta --ranks N/);
  });
});

/** Returns the files of a model, and those of an adapter that PEFT trained on it. */
const adapted = () => ["model", "adapter"].map((part) => filesOf(fixture(`peft/llama_bf16/${part}`)));

test("an adapter next to its model or dropped on it is folded, as by the command", async () => {
  const output = join(folder, "folded");
  run("fold-lora", fixture("peft/llama_bf16/model"), "--adapter", fixture("peft/llama_bf16/adapter"), "-o", output);
  const of = (name) => readFileSync(join(output, "model_folded", name));
  const expected = { "model-converted.safetensors": of("model.safetensors"), "config.json": of("config.json") };
  const fold = async (page) => {
    assert.match(await page.textContent("#family"), /Fold the adapter into the model: adapter_model\.safetensors/);
    await page.getByRole("radio", { name: "safetensors" }).first().click();
    await page.check("#family-fold");
    await page.waitForSelector('.cmdline:has-text("fold-lora model.safetensors --adapter adapter_model.safetensors")');
    const files = await written(page, 2);
    assert.equal(Object.keys(files).length, 2);
    for (const [name, bytes] of Object.entries(expected)) assert.ok(files[name]?.equals(bytes), `${name} of ${Object.keys(files)}`);
  };
  const [model, adapter] = adapted();
  await withPage(browser, async (page) => {
    // The model is opened even if the adapter comes first.
    await sheet(page, [...adapter, ...model]);
    await fold(page);
  });
  await withPage(browser, async (page) => {
    await withoutDialog(page);
    await drop(page, "body", model);
    await page.waitForSelector("#work .row");
    await drop(page, "body", adapter);
    await page.waitForFunction(() => document.title.startsWith("model.safetensors"));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector("#family-fold");
    await fold(page);
  });
});

test("an adapter that does not fit says what is wrong and what to do", async () => {
  const [model, adapter] = adapted();
  const without = adapter.filter(({ name }) => name !== "adapter_config.json");
  const config = JSON.parse(readFileSync(fixture("peft/llama_bf16/adapter/adapter_config.json"), "utf8"));
  const wrong = [...without, { name: "adapter_config.json", bytes: JSON.stringify({ ...config, r: 8 }) }];
  for (const [files, message] of [
    [[...model, ...without], /no adapter_config\.json.*Open it with the model/],
    [[...model, ...wrong], /lora_A has 4 rows.*says rank 8.*saved with these weights/],
    [[...filesOf(fixture("trainer/gpt2"), (name) => name !== "optimizer.pt"), ...adapter], /the model has no such key.*trained on/],
  ]) {
    await withPage(browser, async (page) => {
      await sheet(page, files);
      await page.check("#family-fold");
      await page.waitForSelector("#convert .refused h3, .refused h3");
      assert.match((await page.$$eval(".refused", (all) => all.map((one) => one.textContent).join(" "))).replace(/\s+/g, " "), message);
      assert.equal(await page.isDisabled("#write"), true);
    });
  }
});

/** Writes a GPT-2 of width 2 in which one number does not fit float16; returns its folder. */
function gpt2(dir) {
  mkdirSync(dir);
  writeFileSync(join(dir, "model.safetensors"), floats({
    "transformer.wte.weight": [[0.5, -1]],
    "transformer.wpe.weight": [[0.25, 3]],
    "transformer.h.0.attn.c_attn.weight": [[1, 2, 3, 70000, 5, 6], [0.1, 8, 9, -10, 11, 12]],
  }));
  writeFileSync(join(dir, "config.json"), JSON.stringify({
    architectures: ["GPT2LMHeadModel"], model_type: "gpt2", vocab_size: 1, n_embd: 2, n_head: 1, n_layer: 1, n_positions: 1, n_inner: 8,
    activation_function: "gelu_new", resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0.1, layer_norm_epsilon: 1e-5, initializer_range: 0.02,
  }));
  return dir;
}

test("casts list their losses before writing, and are written as by the command", async () => {
  const dir = gpt2(join(folder, "cast"));
  const name = "model_to_cs-2.9.mdl";
  const byCommand = (...casts) => {
    run("convert-model", dir, "--to", "cs-2.9", "-o", join(folder, "cast on the way"), "--force", ...casts.flatMap((cast) => ["--cast", cast]), "--lossy");
    return readFileSync(join(folder, "cast on the way", name));
  };
  const plan = (page, text) => page.locator(".plan:not(.late)", { hasText: text }).waitFor();
  const f16 = (page) => page.locator('[aria-label^="Cast:"]').getByRole("radio", { name: "f16", exact: true });
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(dir));
    await target(page, "Cerebras 2.9");
    await f16(page).click();
    await plan(page, "float32 becomes float16: numbers beyond 65504 become infinite");
    assert.doesNotMatch(await page.textContent(".plan"), /max \|x\| is/);
    await page.keyboard.press("Escape");
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    await page.keyboard.press("c");
    await target(page, "Cerebras 2.9");
    // Queries, keys and values are slices of one tensor, which was scanned.
    const rules = page.getByRole("textbox", { name: "Rules", exact: true });
    await rules.fill("*proj_*=float16");
    await plan(page, "float32 becomes float16: max |x| is 70000; 1 tensor has numbers that do not fit");
    assert.match(await page.textContent(".cmdline"), /--cast '\*proj_\*=float16'/);
    // The model lacks most of its tensors.
    await page.locator(".loss input").check();
    await page.click("#write");
    await page.waitForSelector("#falsify");
    assert.match(await page.textContent(".sheet"), /proj_k_dense_layer\.weight.*1 of 4 numbers does not fit float16/);
    const files = await written(page, 2, "#falsify");
    assert.ok(files[name].equals(byCommand("*proj_*=float16")));
    assert.match(await page.textContent("#casts"), /float32 to float16, 3 tensors: .*1 did not fit/);
  });
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(dir));
    await target(page, "Cerebras 2.9");
    const rules = page.getByRole("textbox", { name: "Rules", exact: true });
    await rules.fill("transformer.h.*=float16");
    await page.waitForSelector('.refused:has-text("no floating-point tensor has a key that matches")');
    // Rules name keys of the target, so another target clears them.
    await target(page, "Cerebras 2.10");
    assert.equal(await rules.inputValue(), "");
    await target(page, "Cerebras 2.9");
    await rules.fill("*proj_q*=bfloat16");
    await plan(page, "1 cast to bf16");
    await page.locator(".loss input").check();
    const files = await written(page, 2);
    assert.ok(files[name].equals(byCommand("*proj_q*=bfloat16")));
  });
});

test("an edited rule changes the table and the output; an invalid one is reported by line and rule", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    await target(page, "Cerebras 2.9");
    await page.click("#rules-edit");
    const own = await page.inputValue("#rules");
    assert.match(own, /^family llama$/m);
    const line = own.split("\n").findIndex((line) => line.startsWith("model.norm.{wb}")) + 1;
    await page.fill("#rules", own.replace("model.norm.{wb} <->", "model.norm.{wb} <=>"));
    await page.waitForSelector("#rules-wrong");
    const wrong = await page.textContent("#rules-wrong");
    assert.match(wrong, new RegExp(`llama\\.recipe, line ${line}: `));
    assert.match(wrong, /The line reads: model\.norm\.\{wb\} <=> /);
    assert.equal(await page.isDisabled("#write"), true);
    const edited = own.replace("transformer_decoder.norm.{wb} & ln_f.{wb}", "my_own_norm.{wb} & ln_f.{wb}");
    await page.fill("#rules", edited);
    await page.waitForSelector('#family-table td[title*="my_own_norm.weight"]');
    assert.equal(await page.$("#rules-wrong"), null);
    const files = await written(page, 2);
    const recipe = join(folder, "llama.recipe");
    writeFileSync(recipe, edited);
    const output = join(folder, "edited");
    run("convert-model", fixture(SHARDS), "--recipe", recipe, "--src-fmt", "hf", "--to", "cs-2.9", "-o", output);
    const name = "pytorch_model_to_cs-2.9.mdl";
    assert.ok(files[name].equals(readFileSync(join(output, name))));
    assert.match(await page.textContent("#convert-done .cmd"), /--recipe llama\.recipe/);
  });
});

test("with very many keys the table updates with the rules before the plan does", async () => {
  await withPage(browser, async (page) => {
    const keys = Array.from({ length: 25_000 }, (_, at) => `h.${at}.kernel`);
    await sheet(page, [{ name: "own.safetensors", bytes: safetensors(keys) }]);
    const rule = (name) => `family mine\nbetween hf and cs-2.9\nh.{n}.kernel <-> ${name}.{n}.weight\n`;
    await drop(page, "body", [{ name: "mine.recipe", bytes: rule("first") }]);
    await target(page, "Cerebras 2.9");
    await page.waitForSelector('#family-table td[title="first.0–24999.weight"]');
    await page.waitForSelector("#write:not([disabled])");
    await page.fill("#rules", rule("second"));
    await page.waitForSelector('#family-table td[title="second.0–24999.weight"]');
    assert.equal(await page.isDisabled("#write"), true, "the file is not planned yet");
    // The next edit replaces this one.
    await page.fill("#rules", rule("third"));
    await page.waitForSelector('#family-table td[title="third.0–24999.weight"]');
    await page.waitForSelector("#write:not([disabled])");
    const [file] = Object.values(await written(page, 1));
    writeFileSync(join(folder, "third.mdl"), file);
    const listed = run("ls", join(folder, "third.mdl"), "*.24999.weight");
    assert.match(listed, /third\.24999\.weight/);
  });
});

test("unmatched keys come first, with the nearest rule, and are left out on request", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    await target(page, "Cerebras 2.9");
    await page.click("#rules-edit");
    const own = await page.inputValue("#rules");
    await page.fill("#rules", own.replace(/^model\.layers\.\{n\}\.mlp\.up_proj.*\n/m, ""));
    await page.waitForSelector("#family-table tr.none");
    const [first] = await rows(page);
    assert.equal(first[0], "model.layers.0–1.mlp.up_proj.weight");
    assert.match(first[1], /^model\.layers\.\{n\}\.mlp\.(gate|down)_proj\.\{wb\}$/);
    assert.match(await page.textContent(".refused h3"), /No rule covers 2 keys/);
    await page.check("#drop-unmatched");
    await page.locator(".loss input").check();
    await page.waitForSelector("#write:not([disabled])");
    assert.match(await page.textContent(".cmdline .m"), /--drop-unmatched-keys/);
  });
});

test("a config with more layers reports that the model would not load", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    const config = JSON.parse(readFileSync(fixture(`${SHARDS}/config.json`), "utf8"));
    await drop(page, "body", [{ name: "config.json", bytes: JSON.stringify({ ...config, num_hidden_layers: 3 }) }]);
    await target(page, "Cerebras 2.9");
    await page.waitForSelector("#loads .w-danger");
    assert.match(await page.textContent("#loads"), /missing keys: `?transformer_decoder\.layers\.2\./);
    assert.match(await page.textContent("#family-config-name"), /chosen by you/);
    // Writing needs confirmation.
    assert.ok(await page.isDisabled("#write"));
    assert.match(await page.textContent("#write"), /^Acknowledge 1 loss/);
    await page.locator(".loss input").check();
    await page.waitForSelector("#write:not([disabled])");
    // Without this config there is no loss.
    await page.click("#config-remove");
    await page.waitForSelector("#loads .w-good");
    assert.equal(await page.locator(".loss").count(), 0);
  });
});

test("unknown models are reported, and a custom recipe can be dropped", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, [{ name: "own.safetensors", bytes: safetensors(["first.kernel", "second.kernel"]) }]);
    assert.match(await page.textContent("#family"), /No known model family matches/);
    assert.equal(await page.$(".famtargets"), null);
    const recipe = "family mine\nbetween hf and cs-2.9\n{any}.kernel <-> net.{any}.weight\n";
    await drop(page, "body", [{ name: "mine.recipe", bytes: recipe }]);
    await target(page, "Cerebras 2.9");
    await page.waitForSelector('#family-table td[title="net.first.weight"]');
    assert.match(await page.textContent("#loads"), /Not known.*no config/);
  });
  await withPage(browser, async (page) => {
    // A state `model` whose keys match no family: neither the model nor its release is recognised.
    await sheet(page, [{ name: "own.pt", bytes: readFileSync(fixture("torch/zip_training_ckpt.pt")) }]);
    assert.match(await page.textContent("#family"), /No known model family matches/);
    for (const list of ["#family-model", "#family-source"]) assert.equal(await page.textContent(`${list} option`), "not recognised");
  });
});

test("without a config, several families match, and keys without wrappers are not offered to be unwrapped", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, [{ name: "training_state.pt", bytes: readFileSync(fixture("trainer/plain/training_state.pt")) }]);
    await page.waitForSelector("#family .looks");
    await page.waitForFunction(() => /Several model families match/.test(document.querySelector("#family").textContent));
    assert.equal(await page.locator("#family-unwrap").count(), 0);
  });
});

test("only files of matching families are fetched, when needed", async () => {
  const requested = [];
  const watched = async (page) => {
    page.on("request", (request) => requested.push(new URL(request.url()).pathname));
    await withoutDialog(page);
    await drop(page, "body", filesOf(fixture(SHARDS)));
    await page.waitForSelector("#work .row");
    const families = () => requested.filter((path) => /\/(families|configs)\//.test(path)).map((path) => path.split("/").pop());
    assert.deepEqual(families(), []);
    await page.keyboard.press("c");
    await page.waitForSelector("#family .looks b");
    const found = families();
    assert.ok(found.includes("llama.recipe") && found.includes("llama.yaml"), found.join(" "));
    assert.ok(!found.some((name) => /t5|bert|dpr/.test(name)), found.join(" "));
    // Each file is fetched once.
    await target(page, "Cerebras 2.9");
    await page.waitForSelector("#loads .w-good");
    assert.equal(new Set(families()).size, families().length);
  };
  await withPage(browser, watched);
});

test("a family that can't be fetched is reported, and fetched the next time", async () => {
  const offline = async (page) => {
    await withoutDialog(page);
    let blocked = true;
    await page.route(/families\/llama\.recipe/, (route) => (blocked ? route.fulfill({ status: 404, body: "" }) : route.continue()));
    await drop(page, "body", filesOf(fixture(SHARDS)));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector('#family:has-text("could not fetch families/llama.recipe")');
    // Plain conversion still works.
    await page.waitForSelector("#write:not([disabled])");
    blocked = false;
    await page.getByRole("radio", { name: "safetensors" }).first().click();
    await page.waitForSelector('#family[data-model="llama"]');
  };
  await assert.rejects(withPage(browser, offline), /404/);
});

test("plain conversion says that keys keep their names, and offers the family", async () => {
  await withPage(browser, async (page) => {
    await sheet(page, filesOf(fixture(SHARDS)));
    await page.getByRole("radio", { name: "Cerebras" }).first().click();
    await page.waitForSelector("#names-stay");
    assert.match(await page.textContent("#names-stay"), /Keys keep their Hugging Face names/);
    await page.click("#names-stay button");
    await page.waitForSelector("#family-keys");
    assert.equal(await page.textContent('.famtargets [aria-checked="true"]'), "Cerebras 2.10");
  });
});

test("the config can be chosen, and one of another model is reported (core)", async () => {
  await withPage(browser, async (page) => {
    const files = filesOf(fixture(SHARDS));
    const config = JSON.parse(readFileSync(fixture(`${SHARDS}/config.json`), "utf8"));
    await sheet(page, files.filter(({ name }) => !name.endsWith("config.json")));
    // Without a config, the keys match three families.
    await page.waitForSelector("#fitting button");
    const fitting = await page.$$eval("#fitting button", (buttons) => buttons.map((button) => button.dataset.model));
    assert.deepEqual(fitting, ["llama", "mistral", "qwen2"]);
    await page.selectOption("#family-model", "llama");
    await target(page, "Cerebras 2.9");
    await page.waitForSelector("#config-choose");
    assert.ok(await page.locator("#write").isDisabled());
    assert.match(await page.textContent("#write"), /^Write$/);
    assert.match(await page.textContent("#why-not"), /config/);
    const other = { ...config, num_hidden_layers: 40, hidden_size: 512 };
    const chooser = await choosing(page, () => page.click("#config-choose"));
    await chooser.setFiles({ name: "config.json", mimeType: "", buffer: Buffer.from(JSON.stringify(other)) });
    await page.waitForSelector("#config-mismatch");
    assert.match(await page.textContent("#config-mismatch"), /config\.json belongs to another model: it says layers 40, but the file says \d+; hidden size 512, but the file says \d+\./);
    await page.waitForFunction(() => document.querySelector(".refused")?.textContent.includes("belongs to another model"));
    await page.click("#config-remove");
    await page.waitForSelector("#config-mismatch", { state: "detached" });
    // Without a choice of the user, the config is evidence for the model only if it fits.
    await page.selectOption("#family-model", "");
    const layers = { ...config, num_hidden_layers: 40 };
    await drop(page, "body", [{ name: "config.json", bytes: JSON.stringify(layers) }]);
    await page.waitForSelector("#config-mismatch");
    const looks = page.locator("#family .looks");
    assert.match(await looks.textContent(), /Looks like LLaMA.* · likely, from keys$/);
    assert.equal(await looks.locator(".fi.good").count(), 0);
    await page.click("#config-remove");
    await page.waitForSelector("#config-mismatch", { state: "detached" });
    await page.selectOption("#family-model", "llama");
    await drop(page, "body", [{ name: "config.json", bytes: JSON.stringify(config) }]);
    await page.waitForSelector("#loads .w-good");
  });
});

test("a Hugging Face model in a training state is recognised like one in its own file (core)", async () => {
  await withPage(browser, async (page) => {
    const config = { name: "config.json", bytes: readFileSync(fixture(`${SHARDS}/config.json`)) };
    await sheet(page, [{ name: "training_state.pt", bytes: readFileSync(fixture("trainer/plain/training_state.pt")) }, config]);
    await page.waitForSelector('#family[data-model="llama"]');
    assert.match(await page.textContent("#family .looks"), /Looks like LLaMA · Hugging Face/);
    await target(page, "Cerebras 2.9");
    await page.waitForSelector("#loads .w-good");
  });
});

for (const colorScheme of ["light", "dark"]) {
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ]) {
    test(`axe finds nothing at ${width}, ${colorScheme}`, async () => {
      await withPage(
        browser,
        async (page) => {
          await sheet(page, filesOf(fixture(SHARDS)));
          await target(page, "Cerebras 2.9");
          await page.waitForSelector("#loads .w-good");
          await page.click("#rules-edit");
          const look = async (what) => {
            await page.evaluate(axe);
            const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
            const bad = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
            assert.deepEqual(bad.map(({ id, nodes }) => `${what}: ${id}: ${nodes[0].html.slice(0, 200)}`), []);
          };
          await look("rules");
          if (process.env.STATELENS_SHOTS) await page.screenshot({ path: `${process.env.STATELENS_SHOTS}/rules-${width}-${colorScheme}.png` });
          const own = await page.inputValue("#rules");
          await page.fill("#rules", own.replace(/^model\.layers\.\{n\}\.mlp\.up_proj.*\n/m, "what is this\n"));
          await page.waitForSelector("#rules-wrong");
          await look("a wrong rule");
          await page.fill("#rules", own.replace(/^model\.layers\.\{n\}\.mlp\.up_proj.*\n/m, ""));
          await page.waitForSelector("#family-table tr.none");
          await look("a key without a rule");
        },
        { colorScheme, viewport: { width, height } },
      );
    });
  }
}
