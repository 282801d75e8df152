// Usability: names, terms, keyboard, files that are incomplete.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, drop, fixture, launch, withPage } from "./harness.mjs";

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-usability-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Returns a safetensors file of tensors `{name: [dtype, shape, bytes]}`. */
function safetensors(tensors) {
  const entries = {};
  let at = 0;
  for (const [name, [dtype, shape, bytes]] of Object.entries(tensors)) {
    entries[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const header = Buffer.from(JSON.stringify(entries));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, ...Object.values(tensors).map(([, , bytes]) => bytes)]);
}

const floats = (count) => Buffer.from(new Float32Array(count).fill(1.5).buffer);
const opened = (page, name) => page.waitForSelector(`#work[data-name*="${name}"]`);
const show = async (page, name, bytes) => {
  await drop(page, "body", [{ name, bytes }]);
  await opened(page, name);
};

test("a truncated safetensors file shows its complete tensors and a finding", async () => {
  const whole = safetensors({ a: ["F32", [2], floats(2)], b: ["F32", [200], floats(200)] });
  await withPage(browser, async (page) => {
    await show(page, "half.safetensors", whole.subarray(0, whole.length - 400));
    assert.match(await page.textContent(".notice"), /cut short: 400 bytes are missing/);
    await page.click('.row:has([title="a"])');
    await page.waitForSelector(".insp .vals td");
    await page.click('.row:has([title="b"])');
    await page.waitForSelector(".insp .facts");
    assert.match(await page.textContent(".insp"), /the file ends/);
  });
});

test("statistics of integers are integers", async () => {
  const numbers = Buffer.from(new BigInt64Array([-3n, 0n, 12000n]).buffer);
  await withPage(browser, async (page) => {
    await show(page, "ints.safetensors", safetensors({ steps: ["I64", [3], numbers] }));
    await page.keyboard.press("j");
    await page.waitForSelector("#statistics");
    const text = await page.innerText("#statistics");
    assert.match(text, /min\s+−3\s/);
    assert.match(text, /max\s+12,000\s/);
  });
});

test("a very long key leaves room for the rest of the inspector", async () => {
  await withPage(browser, async (page) => {
    const key = `model.${"very_long_name.".repeat(200)}weight`;
    await show(page, "long.safetensors", safetensors({ [key]: ["F32", [2], floats(2)] }));
    await page.keyboard.press("j");
    await page.waitForSelector(".insp .facts");
    const top = await page.$eval(".insp .facts", (facts) => facts.getBoundingClientRect().top - facts.closest(".insp").getBoundingClientRect().top);
    assert.ok(top < 400, `facts begin ${top} px down`);
    await page.click(".insp .longkey summary");
    assert.equal((await page.textContent(".insp .longkey > .wrapkey")).trim(), key);
  });
});

test("the sides of a comparison have distinct names", async () => {
  const bytes = safetensors({ a: ["F32", [2], floats(2)] });
  for (const name of ["one", "two"]) {
    mkdirSync(join(folder, name), { recursive: true });
    writeFileSync(join(folder, name, "model.safetensors"), bytes);
  }
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", join(folder, "one"));
    await opened(page, "model.safetensors");
    const chooser = await choosing(page, () => page.keyboard.press("d"));
    await chooser.setFiles(join(folder, "two", "model.safetensors"));
    await page.waitForSelector("#save-report:not([disabled])");
    const names = await page.$$eval("#compare .ab .name", (names) => names.map((name) => name.textContent));
    assert.deepEqual(names, ["one/model.safetensors", "model.safetensors"]);
  });
});

test("a step of a run folder has its own size", async () => {
  const run = join(folder, "run");
  mkdirSync(run, { recursive: true });
  const gpt = readFileSync(fixture("cerebras/v2.10.0/gpt_small.mdl"));
  for (const step of [100, 200, 300]) writeFileSync(join(run, `checkpoint_${step}.mdl`), gpt);
  writeFileSync(join(run, "checkpoint_400.mdl"), gpt.subarray(0, 100_000));
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-folder", run);
    await page.waitForSelector("#run .row");
    await page.click('#run .row[data-name="checkpoint_200.mdl"]');
    await page.keyboard.press("Enter");
    await page.waitForSelector("#work .row");
    const size = statSync(join(run, "checkpoint_200.mdl")).size.toLocaleString("en");
    assert.match(await page.innerText(".insp"), new RegExp(`bytes on disk\\s+${size}`));
  });
});

test("blocks of GGUF are shown as tensors by their own names", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", fixture("gguf/quants.gguf"));
    await page.waitForSelector("#work .row");
    const kinds = await page.$$eval(".row .cd .dt", (marks) => marks.map((mark) => [mark.textContent, mark.className, mark.title]));
    const blocks = kinds.filter(([text]) => /^I?Q\d/.test(text));
    assert.ok(blocks.length > 0, JSON.stringify(kinds));
    for (const [text, name, title] of blocks) {
      assert.match(name, /fp8/, text);
      assert.doesNotMatch(title, /torch/);
    }
    const label = await page.getAttribute(".tapeview", "aria-label");
    assert.match(label, /\+\d+/, "it says that there are other dtypes");
    await page.fill("#filter", `dtype:${blocks[0][0]}`);
    await page.waitForFunction(() => /\d+ keys?$/.test(document.querySelector(".hits")?.textContent ?? ""));
    assert.doesNotMatch(await page.textContent(".hits"), /^0 /);
  });
});

test("an invalid filter is reported, and sizes may contain a space", async () => {
  await withPage(browser, async (page) => {
    await show(page, "some.safetensors", safetensors({ small: ["F32", [2], floats(2)], large: ["F32", [4000], floats(4000)] }));
    await page.fill("#filter", "foo:bar");
    await page.waitForSelector(".empty");
    assert.match(await page.textContent(".empty"), /‘foo’ is not a filter.*dtype:/);
    await page.fill("#filter", "bytes>10 kB");
    await page.waitForSelector('.hits[data-count="1"]');
    await page.fill("#filter", "bytes > 10 kB");
    await page.waitForSelector('.hits[data-count="1"]');
    // The arrow key moves the focus from the filter to the table.
    await page.focus("#filter");
    await page.keyboard.press("ArrowDown");
    await page.waitForSelector('.row.sel [title="large"]');
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "grid");
  });
});

test("arrow keys move in radio groups and on the tape", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
    await page.waitForSelector("#work .row");
    await page.focus('[role="slider"]');
    await page.keyboard.press("ArrowRight");
    const first = await page.getAttribute('[role="slider"]', "aria-valuetext");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction((first) => document.querySelector('[role="slider"]').getAttribute("aria-valuetext") !== first, first);
    await page.keyboard.press("c");
    const group = page.getByRole("radiogroup").filter({ has: page.getByRole("radio", { name: "safetensors" }) });
    const chosen = () => group.locator('[aria-checked="true"]').textContent();
    const before = await chosen();
    await group.locator('[aria-checked="true"]').focus();
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => document.activeElement.getAttribute("aria-checked") === "true");
    assert.notEqual(await chosen(), before);
    assert.equal(await group.locator('[tabindex="0"]').count(), 1);
  });
});

test("columns can be widened, and a key keeps its layer number", async () => {
  const tensors = {};
  for (const layer of [0, 17]) tensors[`a_rather_long_prefix_of_a_model.with_some.more_names.layers.${layer}.self_attention.projection_of_queries.weight`] = ["F32", [layer + 2], floats(layer + 2)];
  await withPage(browser, async (page) => {
    await show(page, "cut.safetensors", safetensors(tensors));
    const width = () => page.$eval('[role="columnheader"].cs', (head) => head.getBoundingClientRect().width);
    const before = await width();
    const grip = page.locator('[role="columnheader"].cs [role="separator"]');
    await grip.focus();
    await page.keyboard.press("ArrowLeft");
    assert.ok((await width()) > before);
    const widths = await page.$$eval(".row .key .n", (numbers) => numbers.map((node) => [node.textContent, node.scrollWidth <= node.clientWidth + 1]));
    assert.ok(widths.some(([text]) => text.startsWith("17.")), JSON.stringify(widths));
  });
});

test("the convert sheet uses the page's terms", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
    await page.waitForSelector("#work .row");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late), .refused");
    const labels = await page.$$eval(".fields .lab", (labels) => labels.map((label) => label.textContent));
    for (const label of ["Include", "Exclude", "Remove prefix", "Add prefix"]) assert.ok(labels.includes(label), label);
    // The messages of a target name no options of the command.
    for (const target of await page.$$('[aria-label="Target"] [role="radio"]')) {
      await target.click();
      await page.waitForSelector(".plan:not(.late), .refused");
      const texts = await page.$$eval("aside .refused, aside .loss, aside .checks", (parts) => parts.map((part) => part.textContent).join(" "));
      assert.doesNotMatch(texts, /--[a-z]/);
    }
  });
});

test("a small screen has Open, sorting and filters", async () => {
  await withPage(
    browser,
    async (page) => {
      await page.setInputFiles("#choose-files", fixture("cerebras/v2.10.0/gpt_small.mdl"));
      await page.waitForSelector("#work .row");
      for (const label of ["sort by", "dtype filter", "state filter"]) assert.ok(await page.getByLabel(label).isVisible(), label);
      await page.getByLabel("sort by").selectOption("bytes");
      await page.waitForFunction(() => !document.querySelector(".row.grp"));
      const chooser = await choosing(page, () => page.locator(".status").getByRole("button", { name: "Open" }).click());
      await chooser.setFiles(fixture("cerebras/v2.10.0/seed.mdl"));
      await opened(page, "seed.mdl");
    },
    { viewport: { width: 390, height: 844 } },
  );
});

test("the preloaded program is the one used", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  const texts = [];
  page.on("console", (message) => texts.push(message.text()));
  await page.goto(process.env.STATELENS_URL);
  await page.waitForSelector("#start");
  await page.waitForTimeout(500);
  assert.deepEqual(texts.filter((text) => /preload|integrity/.test(text)), []);
  await context.close();
});
