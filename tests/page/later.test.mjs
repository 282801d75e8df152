// The part of the program that is fetched when the page has started: what works before it is there, and that the rest
// waits for it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { accessibility, command, divide, drop, dropped, fixture, launch, site, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** The address of the second part. */
const LATER = /_later\.wasm(\.xz)?$/;

/**
 * Runs `work(page, let_go)` in a page whose second part does not come before `let_go()` is called. The first `failing`
 * requests for it fail.
 */
function withHeld(work, { failing = 0 } = {}) {
  const held = async (page) => {
    let letGo;
    const gate = new Promise((done) => (letGo = done));
    const asked = [];
    await divide(page);
    await page.route(LATER, async (route) => {
      asked.push(route.request().url());
      await gate;
      if (asked.length <= failing) await route.fulfill({ status: 503 });
      else await route.fallback();
    });
    await page.reload();
    await page.waitForSelector("#start");
    await work(page, letGo, asked);
  };
  return withPage(browser, held, { serviceWorkers: "block" });
}

/** Opens a fixture, looks at the first of its values, and lists what the page shows of it. */
async function look(page, names) {
  const files = names.map(dropped);
  await drop(page, "body", files);
  await page.waitForFunction((name) => document.title.startsWith(name), files[0].name.replace(".index", ""));
  await page.waitForSelector("#work .row");
  await page.click(".row:not(.grp)");
  await page.waitForSelector(".insp .facts");
}

test("examples open, are filtered and looked at before the rest of the program is there", async () => {
  await withHeld(async (page, letGo, asked) => {
    await page.click('.ex:has-text("gpt_small.mdl")');
    await page.waitForSelector("#work .row");
    const all = await page.locator("#work .row").count();
    await page.fill("#filter", "bias");
    await page.waitForFunction((all) => document.querySelectorAll("#work .row").length !== all, all);
    await page.fill("#filter", "");
    await page.keyboard.press("Escape");
    await page.click(".row:not(.grp)");
    await page.waitForSelector(".insp .facts");
    assert.equal(asked.length, 1, "its window asked for it, once");
    // What is asked for now waits, and is done when it comes.
    await page.keyboard.press("c");
    await page.waitForSelector('[role=dialog] .lab:has-text("Planning")');
    await page.waitForTimeout(300);
    assert.equal(await page.$(".plan"), null);
    letGo();
    await page.waitForSelector(".plan:not(.late)");
    await page.waitForSelector("#write:not([disabled])");
    await page.keyboard.press("Escape");
    // Another worker gets it from the page, which has it already.
    await page.click(".top .home");
    await page.click('.ex:has-text("zip_training_ckpt.pt")');
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)");
    assert.equal(asked.length, 1);
  });
});

test("every kind of file opens before the rest of the program is there", async () => {
  const files = [
    ["cerebras/v2.10.0/seed.mdl"],
    ["attacks/builtins_eval.pt"],
    ["torch/zip_all_dtypes.pt"],
    ["torch/legacy_all_dtypes.pt"],
    ["torch/zip_quantized.pt"],
    ["torchscript/jit_script.pt"],
    ["torch_export/export.pt2"],
    ["numpy/mixed_members.npz"],
    ["numpy/struct.npy"],
    ["pickle/numpy_proto0.pkl"],
    ["safetensors/save_model_tied.safetensors"],
    ["tf/saver_v2_basic/model.ckpt-1.index", "tf/saver_v2_basic/model.ckpt-1.data-00000-of-00001"],
    ["flax/flax_model.msgpack"],
    ["gguf/quants.gguf"],
    ["hdf5/chunk_partial_edge.h5"],
    ["hdf5/filter_lzf_e.h5"],
    ["keras/k3_bfloat16.keras"],
    ["keras/k2_full.h5"],
  ];
  await withHeld(async (page) => {
    for (const names of files) await look(page, names);
  });
});

test("it is asked for until it comes", async () => {
  let done = false;
  const work = withHeld(
    async (page, letGo, asked) => {
      letGo();
      await page.click('.ex:has-text("gpt_small.mdl")');
      await page.waitForSelector("#work .row");
      await page.keyboard.press("c");
      await page.waitForSelector(".plan:not(.late)");
      assert.equal(asked.length, 4);
      done = true;
    },
    { failing: 3 },
  );
  // The browser prints what failed as errors.
  await assert.rejects(work, /503/);
  assert.ok(done);
});

test("that it does not come is told, with what to do, until it is there", async () => {
  let failing = true;
  const work = withPage(
    browser,
    async (page) => {
      await divide(page);
      await page.route(LATER, (route) => (failing ? route.fulfill({ status: 503 }) : route.fallback()));
      await page.reload();
      await page.click('.ex:has-text("gpt_small.mdl")');
      await page.waitForSelector("#work .row");
      assert.equal(await page.$("#incomplete"), null, "not at the first try");
      await page.keyboard.press("c");
      const told = page.getByRole("alert").filter({ hasText: "Part of Statelens could not be loaded" });
      await told.waitFor();
      assert.match(await told.textContent(), /_later\.wasm(\.xz)?: 503\. .* Check the connection;/);
      assert.deepEqual(await accessibility(page, "incomplete"), []);
      assert.equal(await page.$(".plan"), null);
      failing = false;
      await told.getByRole("button", { name: "Try now" }).click();
      await page.waitForSelector(".plan:not(.late)");
      await page.waitForSelector("#incomplete", { state: "detached" });
    },
    { serviceWorkers: "block" },
  );
  await assert.rejects(work, /503/);
  assert.ok(!failing);
});

test("that it is of another version is told", async () => {
  // Wasm that imports what the first part does not have: `first.nothing`, a function.
  const name = (text) => [text.length, ...Buffer.from(text)];
  const imports = [1, ...name("first"), ...name("nothing"), 0, 0];
  const other = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 2, imports.length, ...imports];
  const visit = async (page) => {
    await divide(page, other);
    await page.reload();
    const told = page.getByRole("alert").filter({ hasText: "a newer version was put on the server" });
    await told.waitFor();
    // What takes the first part alone goes on.
    await page.click('.ex:has-text("gpt_small.mdl")');
    await page.waitForSelector("#work .row");
    await page.unroute(site);
    await told.getByRole("button", { name: "Reload" }).click();
    await told.waitFor({ state: "detached" });
    await page.waitForSelector("#start");
  };
  await withPage(browser, visit, { serviceWorkers: "block" });
});

test("a link that was shared waits for it, and the worker is not taken for dead", async () => {
  await withHeld(async (page, letGo) => {
    await page.goto("about:blank");
    await page.goto(execFileSync(command, ["summary", fixture("cerebras/v2.10.0/gpt_small.mdl"), "--link", site], { encoding: "utf8" }).trim());
    // Longer than a worker may be silent before another one takes its place.
    await page.waitForTimeout(2000);
    assert.equal(await page.$("#work .row"), null);
    letGo();
    await page.waitForSelector("#work .row");
  });
});
