// Links to a selection, and restarts of a crashed worker.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessibility, becomes, drop, launch, site, withPage } from "./harness.mjs";
import { floats, stored } from "./make.mjs";

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const matrix = (at, rows, columns) =>
  Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => (((row * columns + column) * 37 + at) % 101) - 50));
const bytes = floats(Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`model.layers.${at}.mlp.weight`, matrix(at, 40, 30)])));
const name = "small model.safetensors";
const dropModel = (page) => drop(page, "#start", [{ name, bytes }]);
const hash = (page) => page.evaluate(() => decodeURIComponent(location.hash));
const key = (page) => page.locator(".insp .wrapkey").first().textContent();
const waitForModel = (page) => page.waitForSelector(`#work[data-name*="${name}"]`);

/** Opens a URL from another page. */
async function visit(page, path) {
  await page.goto("about:blank");
  await page.goto(`${site}${path}`);
  await page.waitForSelector("#start");
}

test("the URL follows the selection, and Back closes the heatmap (core)", async () => {
  await withPage(browser, async (page) => {
    await dropModel(page);
    await waitForModel(page);
    await becomes(() => hash(page), `#file=${name}`);
    await page.fill("#filter", "layers.3");
    await page.keyboard.press("Enter");
    await becomes(() => hash(page), `#file=${name}&key=model.layers.3.mlp.weight&filter=layers.3`);
    const steps = await page.evaluate(() => history.length);
    await page.keyboard.press("e");
    await page.waitForSelector(".matrix");
    await becomes(() => hash(page), `#file=${name}&key=model.layers.3.mlp.weight&slice=[0,0]&filter=layers.3&view=expanded`);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    await becomes(() => hash(page), `#file=${name}&key=model.layers.3.mlp.weight&slice=[1,1]&filter=layers.3&view=expanded`);
    assert.equal(await page.evaluate(() => history.length), steps + 1, "one entry for the heatmap, none for the arrow keys");
    await page.goBack();
    await page.waitForSelector("#work .row");
    assert.equal(await key(page), "model.layers.3.mlp.weight");
    await page.goForward();
    await page.waitForSelector(".matrix");
    await becomes(() => hash(page), `#file=${name}&key=model.layers.3.mlp.weight&slice=[1,1]&filter=layers.3&view=expanded`);
    // Escape restores the workspace, too.
    await page.keyboard.press("Escape");
    await page.waitForSelector("#work .row");
    await page.keyboard.press("f");
    await becomes(async () => /view=findings$/.test(await hash(page)), true);
  });
});

test("a link names its file, and selects the value in it", async () => {
  await withPage(browser, async (page) => {
    await visit(page, "#file=small%20model.safetensors&key=model.layers.7.mlp.weight&slice=[12:14,5:9]&view=expanded");
    assert.match(await page.textContent("#wanted"), /points to model\.layers\.7\.mlp\.weight in small model\.safetensors/);
    assert.deepEqual(await accessibility(page, "wanted"), []);
    await dropModel(page);
    await page.waitForSelector(".matrix");
    await becomes(() => hash(page), `#file=${name}&key=model.layers.7.mlp.weight&slice=[12:14,5:9]&at=[12,5]&view=expanded`);
    assert.equal(await page.textContent(".exp .main h2"), "[12:14, 5:9]");
    // The user edits the URL.
    await page.evaluate(() => (location.hash = "#file=small%20model.safetensors&key=model.layers.2.mlp.weight"));
    await page.waitForSelector("#work .row.sel");
    assert.equal(await key(page), "model.layers.2.mlp.weight");
    await page.evaluate(() => (location.hash = "#file=small%20model.safetensors&key=nothing.like.it"));
    assert.match(await page.locator("#notice").textContent(), /does not have: nothing\.like\.it/);
  });
});

const KEY = "model.layers.7.mlp.weight";
const slice = (page) => page.locator("#slice .m").first().textContent();
const typed = async (page, text) => {
  await page.fill("#go-to", text);
  await page.press("#go-to", "Enter");
};

test("a typed slice is part of the URL: Back, Forward and links restore it", async () => {
  const link = (part, more = "") => `#file=${name}&key=${KEY}${part && `&slice=${part}`}${more}&filter=${KEY}`;
  await withPage(browser, async (page) => {
    await dropModel(page);
    await waitForModel(page);
    await page.fill("#filter", KEY);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#go-to");
    await becomes(() => hash(page), link(""));
    const steps = await page.evaluate(() => history.length);
    await typed(page, "[0:2, -4:]");
    await becomes(() => hash(page), link("[0:2,26:30]"));
    await typed(page, "3");
    await becomes(() => hash(page), link("[3,:]"));
    await becomes(() => slice(page), "[3, :]");
    assert.equal(await page.evaluate(() => history.length), steps + 2);
    await page.goBack();
    await becomes(() => slice(page), "[0:2, 26:30]");
    await becomes(() => hash(page), link("[0:2,26:30]"));
    await page.goBack();
    await becomes(() => page.locator("#slice").count(), 0);
    await page.goForward();
    await becomes(() => slice(page), "[0:2, 26:30]");
    // An index selects a value of the whole tensor.
    await typed(page, "5, 6");
    await becomes(() => hash(page), link("[5,6]"));
    await page.goBack();
    await becomes(() => slice(page), "[0:2, 26:30]");
    // A button shows the whole tensor.
    await page.click("#slice-whole");
    await becomes(() => hash(page), link(""));
    // A shared link shows the slice.
    await visit(page, `#file=small%20model.safetensors&key=${KEY}&slice=[1:4,::-7]`);
    await dropModel(page);
    await becomes(() => slice(page), "[1:4, 29:0:-7]");
    const first = await page.locator(".vals td").first().getAttribute("title");
    assert.equal(first, String(bytes.readFloatLE(8 + Number(bytes.readBigUInt64LE(0)) + 4 * (7 * 1200 + 1 * 30 + 29)).toFixed(1)));
  });
});

test("the heatmap of a slice has a URL; dragging an index adds no history entry", async () => {
  const cube = { name: "cube.safetensors", bytes: stored({ w: ["F32", [3, 4, 5, 6], Buffer.from(Float32Array.from({ length: 360 }, (_, at) => at).buffer)] }) };
  await withPage(browser, async (page) => {
    await visit(page, "#file=cube.safetensors&key=w&slice=[0,:,3,:]&at=[0,2,3,4]&view=expanded");
    await drop(page, "#start", [cube]);
    await page.waitForSelector(".matrix");
    await becomes(() => page.textContent(".exp .main h2"), "[0, :, 3, :]");
    await becomes(async () => (await page.textContent("#selected-value")).startsWith("[0, 2, 3, 4]"), true);
    const steps = await page.evaluate(() => history.length);
    await page.locator('[aria-label="Slider of dimension 2"]').fill("1");
    await becomes(() => hash(page), "#file=cube.safetensors&key=w&slice=[0,:,1,:]&at=[0,2,1,4]&view=expanded");
    assert.equal(await page.evaluate(() => history.length), steps);
    await typed(page, "[1, :, ::2, 2]");
    await becomes(async () => /slice=\[1,:,0:5:2,2\]&at=\[1,2,\d,2\]&view=expanded$/.test(await hash(page)), true);
    await page.goBack();
    await becomes(() => page.textContent(".exp .main h2"), "[0, :, 1, :]");
    await page.goForward();
    await becomes(() => page.textContent(".exp .main h2"), "[1, :, 0:5:2, 2]");
  });
});

test("a link with an invalid slice is reported, and the slice ignored", async () => {
  await withPage(browser, async (page) => {
    await dropModel(page);
    await waitForModel(page);
    const go = (part) => page.evaluate((to) => (location.hash = to), `#file=small%20model.safetensors&key=${KEY}&slice=${part}`);
    const notice = page.locator("#notice");
    for (const [part, message] of [
      ["[99,:]", /\[99,:\] of model\.layers\.7\.mlp\.weight; the slice is ignored\. .*index 99 is outside of 40/],
      ["[40:,:]", /has no values/],
      ["[a:]", /not a whole number/],
      ["[::0]", /a step of 0/],
      ["[:,:,:]", /more parts than the tensor has dimensions/],
      ["[1,2,3]", /2 numbers/],
      ["[9223372036854775808:]", /not a whole number/],
      ["[0:9223372036854775807:9223372036854775807,:]", null],
      ["[]", /2 numbers/],
      ["[1:3,:]&at=[7]", /2 numbers/],
      ["[1:3,:]&at=[2,99]", /Index 99 is out of range \(0–29\)/],
    ]) {
      await go("[0:2,:]");
      await becomes(() => slice(page), "[0:2, :]");
      await go(part);
      if (message) {
        await notice.filter({ hasText: message }).waitFor();
        await becomes(() => page.locator("#slice").count(), 0);
      } else {
        await becomes(() => slice(page), "[0:1:9223372036854775807, :]");
      }
      assert.equal(await key(page), KEY);
    }
    await go("[99,:]&view=expanded");
    await page.waitForSelector(".matrix");
    assert.equal(await page.textContent(".exp .main h2"), "Whole tensor");
  });
});

test("a reloaded page names the file that was open", async () => {
  await withPage(browser, async (page) => {
    await dropModel(page);
    await waitForModel(page);
    await page.fill("#filter", "layers.3");
    await page.keyboard.press("Enter");
    await becomes(() => hash(page), `#file=${name}&key=model.layers.3.mlp.weight&filter=layers.3`);
    await page.reload();
    await page.waitForSelector("#wanted");
    assert.equal(await page.textContent("#wanted"), "You had small model.safetensors open. Drop it again to pick up where you left off, at model.layers.3.mlp.weight.");
    assert.deepEqual(await accessibility(page, "was open"), []);
    // After another reload, it still does.
    await page.reload();
    assert.match(await page.textContent("#wanted"), /^You had small model\.safetensors open/);
    await dropModel(page);
    await page.waitForSelector("#work .row.sel");
    assert.equal(await key(page), "model.layers.3.mlp.weight");
    // A shared link is reported as one even if another file was open before, and after a reload.
    await visit(page, "#file=other.safetensors&key=model.layers.7.mlp.weight");
    await page.reload();
    assert.match(await page.textContent("#wanted"), /^This link points to model\.layers\.7\.mlp\.weight in other\.safetensors\. Drop/);
  });
});

test("a link to a remote checkpoint opens it", async () => {
  await withPage(browser, async (page) => {
    await page.goto("about:blank");
    await page.goto(`${site}?url=examples/gpt_small.mdl#filter=kind:tensor&view=findings`);
    await page.waitForSelector(".sheet.findings");
    assert.equal(await page.inputValue("#filter"), "kind:tensor");
    assert.match(page.url(), /\?url=.*#filter=kind:tensor&view=findings$/);
  });
});

for (const [how, stop] of [
  ["with an unhandled rejection", () => void Promise.reject(new Error("a trap"))],
  ["with an uncaught error", () => void setTimeout(() => { throw new Error("a trap"); })],
]) {
  test(`a worker that crashes ${how} is restarted, with the same selection`, async () => {
    await withPage(browser, async (page) => {
      await dropModel(page);
      await waitForModel(page);
      await page.fill("#filter", "layers.1");
      await page.keyboard.press("Enter");
      await page.keyboard.press("j");
      const before = await key(page);
      const worker = page.workers()[0];
      await worker.evaluate(stop);
      assert.match(await page.locator("#notice").textContent(), /The reader stopped.*small model\.safetensors is open again at the same place/);
      await page.waitForSelector(".row.sel");
      assert.equal(await key(page), before);
      assert.equal(await page.inputValue("#filter"), "layers.1");
      await page.waitForSelector(".vals");
      // A worker that crashes again at once is not restarted.
      await page.workers().at(-1).evaluate(stop);
      await page.waitForSelector("#error");
      assert.match(await page.textContent("#error"), /The reader stopped/);
    });
  });
}
