// The model description and the treemap.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { accessibility, fixture, launch, withPage } from "./harness.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const folder = "trainer/gpt2";
const model = fixture(`${folder}/pytorch_model.bin`);
const config = fixture(`${folder}/config.json`);

async function open(page, ...files) {
  await page.setInputFiles("#choose-files", files);
  await page.waitForSelector("#work .row");
  await page.waitForSelector("#show-model", { state: "attached" });
}

/** Returns a list of facts: by label, the value and its source. */
const listed = (page, list) =>
  page.$$eval(`${list} dt`, (terms) =>
    Object.fromEntries(
      terms.map((term) => {
        const value = term.nextElementSibling;
        const source = value.querySelector(".src")?.textContent ?? "unknown";
        return [term.textContent, [value.childNodes[0].textContent, source]];
      }),
    ),
  );

test("read, inferred and unknown facts are distinguished", () =>
  withPage(browser, async (page) => {
    const original = JSON.parse(readFileSync(config, "utf8"));
    await open(page, model);
    let facts = await listed(page, ".insp .understood dl");
    assert.deepEqual(facts.layers, [String(original.n_layer), "inferred"]);
    assert.equal(facts.heads, undefined);
    assert.match(await page.textContent("#unknown-facts"), /^Not in the file: heads/);
    assert.match(facts["family"][0], /^GPT-2-like/);

    await open(page, model, config);
    facts = await listed(page, ".insp .understood dl");
    assert.deepEqual(facts.layers, [String(original.n_layer), "from config"]);
    assert.equal(facts.heads[0], String(original.n_head));
    assert.equal(facts.heads[1], "from config");
    assert.equal(facts["hidden size"][0], original.n_embd.toLocaleString("en"));
    assert.match(await page.innerText(".insp .parts"), /attention[\s\S]*MLP/);
    assert.deepEqual(await accessibility(page, "model description"), []);
  }));

test("facts about the model are shown once, and a button below the tree shows them again (core)", () =>
  withPage(
    browser,
    async (page) => {
      await open(page, model, config);
      const layers = () => page.locator("dt", { visible: true }).filter({ hasText: /^layers$/ }).count();
      assert.equal(await layers(), 1);
      assert.equal(await page.locator("#show-model").isVisible(), false, "the inspector has them");
      await page.keyboard.press("t");
      await page.waitForSelector(".mapparts");
      assert.equal(await page.getByRole("list", { name: "Parameters by part" }).count(), 1);
      await page.keyboard.press("t");
      await page.waitForSelector("#work .row");
      await page.locator("#work .row[data-key]").first().click();
      await page.click("#show-model");
      await page.waitForSelector(".insp .understood dl");
      assert.equal(await layers(), 1);
    },
    { viewport: { width: 1440, height: 900 } },
  ));

test("a config that contradicts the tensors is a warning with both numbers, and moves no row (core)", () =>
  withPage(browser, async (page) => {
    const original = JSON.parse(readFileSync(config, "utf8"));
    const other = { name: "config.json", mimeType: "", buffer: Buffer.from(JSON.stringify({ ...original, n_layer: 40, n_embd: 512 })) };
    await page.setInputFiles("#choose-files", [{ name: "pytorch_model.bin", mimeType: "", buffer: readFileSync(model) }, other]);
    await page.waitForSelector("#work .row");
    const top = (await page.locator("#work .scroller .row").first().boundingBox()).y;
    await page.waitForSelector("#work .notice.warn");
    assert.equal((await page.locator("#work .scroller .row").first().boundingBox()).y, top);
    assert.match(await page.textContent(".status"), /1 warning/);
    // The inspector shows each contradiction once.
    const facts = await page.textContent(".insp .understood dl");
    for (const doubt of await page.$$eval(".insp .doubt", (doubts) => doubts.map((doubt) => doubt.textContent))) {
      assert.equal(facts.split(doubt).length - 1, 1, doubt);
    }
    await page.keyboard.press("f");
    await page.waitForSelector(".find.warn");
    const text = await page.textContent(".find.warn");
    assert.match(text, /config\.json does not fit this checkpoint/i);
    assert.match(text, new RegExp(`layers: 40 in config\\.json: n_layer, but the file says ${original.n_layer}\\b`));
    assert.match(text, new RegExp(`hidden size: 512 in config\\.json: n_embd, but the file says ${original.n_embd}\\b`));
  }));

test("the model is described once typing after opening pauses", () =>
  withPage(browser, async (page) => {
    const requested = () => page.evaluate(() => window.requested);
    await page.evaluate(() => {
      window.requested = 0;
      const post = Worker.prototype.postMessage;
      Worker.prototype.postMessage = function (message, ...rest) {
        window.requested += JSON.stringify(message, (_, value) => (typeof value === "bigint" ? 0 : value)).includes("DescribeModel");
        return post.call(this, message, ...rest);
      };
      // The timers of the pause, by number, run when the test runs them.
      window.pauses = new Map();
      let count = 0;
      const { setTimeout, clearTimeout } = window;
      window.setTimeout = (run, delay, ...rest) => {
        if (delay !== 250) return setTimeout(run, delay, ...rest);
        window.pauses.set(--count, run);
        return count;
      };
      window.clearTimeout = (timer) => window.pauses.delete(timer) || clearTimeout(timer);
    });
    const pause = async (last) => {
      await page.waitForFunction((last) => window.pauses.size === 1 && !window.pauses.has(last), last);
      return page.evaluate(() => [...window.pauses.keys()][0]);
    };
    await page.setInputFiles("#choose-files", model);
    let timer = await pause();
    for (const typed of ["w", "we", "weight"]) {
      await page.fill("#filter", typed);
      timer = await pause(timer);
      assert.equal(await requested(), 0, typed);
    }
    await page.evaluate((timer) => window.pauses.get(timer)(), timer);
    await page.waitForSelector("#show-model", { state: "attached" });
    assert.equal(await requested(), 1);
    await page.evaluate(() => window.pauses.clear());
    await page.fill("#filter", "");
    await page.waitForFunction(() => document.querySelectorAll("#work .row").length > 1);
    assert.deepEqual([await requested(), await page.evaluate(() => window.pauses.size)], [1, 0]);
  }));

test("treemap boxes are sized by bytes, and arrow keys move between them (core)", () =>
  withPage(browser, async (page) => {
    await open(page, model);
    await page.keyboard.press("t");
    await page.waitForSelector(".map .box");
    // Areas of the boxes that contain no others, and the shares in their titles.
    const sizes = await page.$$eval(".map .box:not(.open)", (boxes) =>
      boxes.map((box) => {
        const { width, height } = box.getBoundingClientRect();
        const share = Number(/, ([\d.]+) %/.exec(box.title)[1]);
        return [width * height, share];
      }),
    );
    const largest = Math.max(...sizes.map(([area]) => area));
    assert.equal(largest, sizes.find(([, share]) => share === Math.max(...sizes.map(([, share]) => share)))[0]);
    assert.ok(sizes.length < 320);
    await page.keyboard.press("ArrowRight");
    await page.waitForSelector(".map .box.sel");
    const first = await page.getAttribute(".map .box.sel", "id");
    const [share] = await page.$eval(".map .box.sel", (box) => [Number(/, ([\d.]+) %/.exec(box.title)[1])]);
    assert.equal(share, Math.max(...sizes.map(([, share]) => share)), "the first key chooses the largest box");
    const lens = () => page.getAttribute(".tape .lens circle", "cx");
    const before = await lens();
    // The next box is to the right or below.
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction((first) => document.querySelector(".map .box.sel")?.id !== first, first);
    assert.notEqual(await lens(), before, "the lens marks the same bytes");
    assert.equal(await page.getAttribute(".map", "aria-activedescendant"), await page.getAttribute(".map .box.sel", "id"));

    // Enter zooms in, and Escape zooms out.
    await page.keyboard.press("Enter");
    await page.waitForSelector(".mapway [aria-current]");
    await page.keyboard.press("Escape");
    await page.waitForSelector(".mapway [aria-current]", { state: "detached" });
    // A click on the heading of a box zooms in, too.
    await page.click(".map .box.open .t", { force: true });
    await page.waitForSelector(".mapway [aria-current]");
    await page.keyboard.press("Escape");
    await page.waitForSelector(".mapway [aria-current]", { state: "detached" });
    const download = page.waitForEvent("download");
    await page.locator(".maphead").getByRole("button", { name: "CSV" }).click();
    const csv = readFileSync(await (await download).path(), "utf8");
    assert.match(csv, /^key,times,dtype,tensors,params,bytes,share,holds_others\n/);
    await page.locator(".maphead").getByRole("radio", { name: "by dtype" }).click();
    await page.waitForFunction(() => document.querySelector(".map .box")?.title.startsWith("float32"));
    assert.deepEqual(await accessibility(page, "treemap by dtype"), []);
    await page.keyboard.press("t");
    await page.waitForSelector("#work .row");
  }));

for (const [width, height] of [[390, 844], [1440, 900]]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`the treemap has no accessibility violations at ${width}, ${colorScheme}`, () =>
      withPage(
        browser,
        async (page) => {
          await open(page, model, config);
          await page.keyboard.press("t");
          await page.waitForSelector(".map .box");
          assert.deepEqual(await accessibility(page, "treemap"), []);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(wide <= width, `${wide}`);
        },
        { viewport: { width, height }, colorScheme },
      ));
  }
}
