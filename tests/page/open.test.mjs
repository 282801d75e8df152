// Opening: checkpoints, examples, damaged and unknown files, and files that link to each other.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { drop, dropped, launch, withPage } from "./harness.mjs";
import { manyKeys } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const pointer = `version https://git-lfs.github.com/spec/v1
oid sha256:61c9f3a8d4a0b7f2e5a9c86f1d0be7c4429a53e1f0dd6b78ab9f22b0c517e3d4
size 4938993736
`;

/** Returns the keys of the visible rows, in order. */
const keys = (page) =>
  page.$$eval(".row:not(.grp) .ck", (cells) => cells.map((cell) => cell.getAttribute("title")));

/** Drops a file and waits until it is open. */
async function open(page, file) {
  await drop(page, "body", [file]);
  await page.waitForFunction((name) => document.title.startsWith(name), file.name);
  await page.waitForSelector("#work .row");
}

test("the seed state dict has five rows", async () => {
  await withPage(browser, async (page) => {
    await open(page, dropped("cerebras/v2.10.0/seed.mdl"));
    assert.deepEqual(await keys(page), ["a.b", "a.c", "d.0", "d.1", "d.2"]);
    assert.match(await page.textContent(".top .badge"), /Cerebras.* 0\.5 · .*2\.10\.0/);
    const linked = page.locator('.row:has([title="d.0"]) .cv');
    assert.match(await linked.textContent(), /0\.1= a\.b/);
    await open(page, dropped("cerebras/v2.10.0/seed.pt"));
    assert.deepEqual(await keys(page), ["a.b", "a.c", "d.0", "d.1", "d.2"]);
  });
});

test("a training state folds, and a layer shows its values (core)", async () => {
  await withPage(browser, async (page) => {
    await open(page, dropped("cerebras/v2.10.0/gpt_small.mdl"));
    await page.click('.row:has([title="model.model.blocks.0–1.qkv.weight"])');
    await page.waitForSelector(".vals td");
    assert.match(await page.textContent(".insp .step"), /block 0 of 0–1/);
    await page.click('.insp button[aria-label="Next"]');
    await page.waitForFunction(() => /block 1 of/.test(document.querySelector(".insp .step").textContent));
    assert.equal(await page.textContent(".insp .wrapkey"), "model.model.blocks.1.qkv.weight");
    assert.match(await page.textContent(".insp .facts"), /bytes12,288/);
    // The values of the other layer are read.
    await page.waitForSelector(".vals td");
    assert.equal(await page.$$eval(".vals td", (cells) => cells.filter((cell) => cell.textContent).length), 60);
  });
});

test("bundled examples open with one click (core)", async () => {
  await withPage(browser, async (page) => {
    for (const name of ["gpt_small.mdl", "zip_training_ckpt.pt", "builtins_eval.pt"]) {
      await page.click(`.ex[data-name="${name}"]`);
      await page.waitForFunction((name) => document.title.startsWith(name), name);
      await page.click(".top .home");
      await page.waitForSelector("#start");
    }
  });
});

test("a hostile pickle is reported and never run (core)", async () => {
  await withPage(browser, async (page) => {
    await open(page, dropped("attacks/builtins_eval.pt"));
    assert.match(await page.textContent(".status"), /1 danger/);
    await page.keyboard.press("f");
    const sheet = await page.textContent('[role="dialog"]');
    for (const word of ["builtins", "eval", "never run"]) assert.ok(sheet.includes(word), word);
  });
});

test("a Git LFS pointer says what it is and what to do", async () => {
  await withPage(browser, async (page) => {
    await drop(page, "body", [{ name: "model.mdl", bytes: pointer }]);
    await page.waitForSelector("#error");
    const text = await page.textContent("#error");
    assert.match(text, /Git LFS pointer/);
    assert.match(text, /4,938,993,736 bytes/);
    assert.match(text, /git lfs pull --include model\.mdl/);
    await page.keyboard.press("Escape");
    await page.waitForSelector("#start");
  });
});

test("damaged and unknown files are reported in sentences (core)", async () => {
  await withPage(browser, async (page) => {
    const whole = dropped("cerebras/v2.10.0/gpt_small.mdl").bytes;
    for (const [bytes, word] of [
      [whole.subarray(0, 900), /Damaged/],
      [Buffer.from("hello"), /Not supported/],
      [Buffer.alloc(0), /Damaged/],
    ]) {
      await drop(page, "body", [{ name: "x.mdl", bytes }]);
      await page.waitForSelector("#error");
      assert.match(await page.textContent("#error"), word);
      await page.click("#error .home");
      await page.waitForSelector("#start");
    }
  });
});

test("files that are not checkpoints do not prevent others from opening", async () => {
  await withPage(browser, async (page) => {
    const files = [
      { name: "README.md", bytes: "# A model" },
      { name: "broken.pt", bytes: "not a zip" },
      dropped("cerebras/v2.10.0/seed.mdl"),
    ];
    await drop(page, "body", files);
    await page.waitForFunction(() => document.title.startsWith("seed.mdl"));
    assert.match(await page.textContent(".status"), /1 warning/);
  });
});

test("a file that others link to opens with them, and each can be selected", async () => {
  await withPage(browser, async (page) => {
    const [link, target] = ["link_external.mdl", "link_target.mdl"].map((name) =>
      dropped(`cerebras/v2.10.0-special/${name}`));
    await open(page, link);
    assert.match(await page.getAttribute('.row:has([title="x.w"]) .cv .gone', "title"), /link_target\.mdl/);
    await page.keyboard.press("f");
    assert.match(await page.textContent('[role="dialog"]'), /link_target\.mdl.*Add the file/);
    await page.keyboard.press("Escape");
    await drop(page, "body", [target]);
    await page.waitForFunction(() => document.querySelector('.row [title="x.w"]')?.closest(".row").querySelector(".cv").textContent === "");
    assert.equal(await page.title(), "link_external.mdl \u{b7} Statelens");
    await page.click('.row:has([title="x.w"])');
    await page.waitForSelector(".vals td");
    await page.keyboard.press("]");
    await page.waitForFunction(() => document.title.startsWith("link_target.mdl"));
    await page.keyboard.press("[");
    await page.waitForFunction(() => document.title.startsWith("link_external.mdl"));
  });
});

test("20,000 keys open at once and scroll; only visible rows exist", async () => {
  await withPage(browser, async (page) => {
    const bytes = manyKeys(20_000);
    const transfer = await page.evaluateHandle(([base64]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], "many.pkl"));
      return transfer;
    }, [bytes.toString("base64")]);
    // From the drop to the table, measured by the page's clock.
    const millis = await page.evaluate(
      (transfer) =>
        new Promise((resolve) => {
          const began = performance.now();
          new MutationObserver(() => {
            if (document.querySelector("#work .row")) resolve(performance.now() - began);
          }).observe(document.body, { childList: true, subtree: true });
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }),
      transfer,
    );
    console.log(`# 20,000 keys: ${Math.round(millis)} ms from the drop to the table`);
    await page.keyboard.press("l");
    assert.ok((await page.$$(".row")).length < 120);
    await page.keyboard.press("End");
    await page.waitForFunction(() =>
      [...document.querySelectorAll(".row.sel .ck")].some((cell) => cell.title.includes("part_19999")));
    assert.ok((await page.$$(".row")).length < 120);
    await page.keyboard.press("/");
    await page.keyboard.type("part_777. kind:float");
    await page.waitForSelector('.hits[data-count="1"]');
    assert.deepEqual(await keys(page), ["module.0.part_777.weight_scale"]);
  });
});
