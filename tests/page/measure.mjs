// Measures how long the page takes to open, filter, scroll, verify and convert files of very many keys, for
// `cargo xtask bench`. Slow results are not failures.
//
//     node measure.mjs FOLDER [PART OF A FILE'S NAME]

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { command, launch, site } from "./harness.mjs";
import { safetensors } from "./make.mjs";
import { marked, memory } from "./memory.mjs";

const PARTS = ["attention.weight", "attention.bias", "dense.weight", "dense.bias"];

/** Kinds of keys: flat names, layers that fold, and deep paths that share little. */
const SHAPES = {
  flat: (at) => `tensor_${at}_weight`,
  layers: (at) => `model.layers.${at >> 2}.${PARTS[at & 3]}`,
  deep: (at) => `a.b.c${at % 10}.d${Math.floor(at / 10) % 100}.e.f.i${at}.j.k.weight`,
};

const COUNTS = [20_000, 100_000];
const KINDS = ["safetensors", "pt", "npz", "mdl"];

/** Texts that are typed into the filter, letter by letter. */
const WORDS = ["weight", "/we.*t/"];
const FRAMES = 60;

/** Defines the functions that measure. Runs in the page. */
function tools() {
  window.bench = {
    /** Waits until pending changes are on the screen. */
    painted: () => new Promise((done) => requestAnimationFrame(() => setTimeout(done))),
    elements: () => document.getElementsByTagName("*").length,
    /** Measures the times between frames during `act`: median, 95th percentile and maximum. */
    async frames(act) {
      const times = [];
      let going = true;
      const frame = (time) => {
        times.push(time);
        if (going) requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
      const result = await act();
      going = false;
      const took = times.slice(1).map((time, at) => time - times[at]).sort((one, other) => one - other);
      const at = (part) => took[Math.ceil(part * took.length) - 1] ?? 0;
      return { result, frames: [at(0.5), at(0.95), at(1)] };
    },
    /** Measures the time from the choice of a file to its first rows, and to the complete table. */
    opening() {
      const chosen = new Promise((done) => addEventListener("change", () => done(performance.now()), { capture: true, once: true }));
      this.opened = chosen.then(async (began) => {
        do await this.painted();
        while (!document.querySelector(".row"));
        this.first = performance.now() - began;
        do await this.painted();
        while (!document.querySelector("#work .row"));
        return performance.now() - began;
      });
    },
    /** Types a word. Returns the longest times of a letter: until all rows or the first are drawn, and of a busy page. */
    async typing(word) {
      const input = document.querySelector("#filter");
      const type = (text) => {
        input.value = text;
        input.dispatchEvent(new InputEvent("input", { bubbles: true }));
      };
      let [slowest, busiest, shown] = [0, 0, 0];
      for (let end = 1; end <= word.length; end++) {
        const began = performance.now();
        type(word.slice(0, end));
        this.painted().then(() => (shown = Math.max(shown, performance.now() - began)));
        for (;;) {
          const from = performance.now();
          await new Promise((done) => setTimeout(done));
          busiest = Math.max(busiest, performance.now() - from);
          if (!/searched/.test(document.querySelector(".hits")?.textContent ?? "")) break;
        }
        await this.painted();
        slowest = Math.max(slowest, performance.now() - began);
      }
      type("");
      await this.painted();
      return { slowest, busiest, shown };
    },
    /** Scrolls from one end to the other, one step per frame. */
    async scrolling(selector, frames) {
      const element = document.querySelector(selector);
      const step = (element.scrollHeight - element.clientHeight) / frames;
      for (let frame = 0; frame <= frames; frame++) {
        await new Promise(requestAnimationFrame);
        element.scrollTop = frame * step;
      }
      await this.painted();
      element.scrollTop = 0;
      await this.painted();
    },
  };
}

/** Returns the milliseconds from `act` until an element exists. */
async function until(page, selector, act) {
  const began = performance.now();
  await act();
  await page.waitForSelector(selector, { timeout: 600_000 });
  return performance.now() - began;
}

async function measure(browser, file) {
  const context = await browser.newContext({ acceptDownloads: true });
  try {
    const page = await context.newPage();
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.addInitScript(tools);
    await page.goto(site);
    await page.waitForSelector("#start");
    await page.waitForTimeout(500);
    const start = memory();
    const found = { file: basename(file) };
    await page.evaluate(() => bench.opening());
    await page.setInputFiles("#choose-files", file);
    found.open = await page.evaluate(() => bench.opened);
    found.first = await page.evaluate(() => bench.first);
    found.elements = await page.evaluate(() => bench.elements());
    found.opened_megabytes = memory() - start;
    for (const [name, word] of [["filter", WORDS[0]], ["expression", WORDS[1]]]) {
      const { result, frames } = await page.evaluate((word) => bench.frames(() => bench.typing(word)), word);
      const { slowest, busiest, shown } = result;
      found[`${name}_frames`] = frames;
      found[name] = slowest;
      found[`${name}_busy`] = busiest;
      found[`${name}_shown`] = shown;
    }
    for (const [name, selector] of [["table", ".gridbox .scroller"], ["tree", "[role=tree]"]]) {
      const scrolled = await page.evaluate(([selector, frames]) => bench.frames(() => bench.scrolling(selector, frames)), [selector, FRAMES]);
      found[`scroll_${name}`] = scrolled.frames;
    }
    found.elements = Math.max(found.elements, await page.evaluate(() => bench.elements()));
    await page.keyboard.press("v");
    found.verify = await until(page, "#verify-done", () => page.click("#verify-begin"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("c");
    await page.waitForSelector(".plan:not(.late)", { timeout: 600_000 });
    for (const box of await page.$$(".loss input")) await box.check();
    await page.waitForSelector("#write:not([disabled])", { timeout: 600_000 });
    found.convert = await until(page, "#convert-done", () => page.click("#write"));
    found.megabytes = memory() - start;
    return found;
  } finally {
    await context.close();
  }
}

/** Yields the files to measure, and creates missing ones. */
function* files(folder) {
  mkdirSync(folder, { recursive: true });
  for (const [shape, key] of Object.entries(SHAPES)) {
    for (const kind of KINDS) {
      for (const count of COUNTS) {
        // Deep keys measure folding, which hardly depends on the format.
        if (shape === "deep" && !(kind === "safetensors" && count === 100_000)) continue;
        if (!`${shape}-${count}.${kind}`.includes(process.argv[3] ?? "")) continue;
        const plain = join(folder, `${shape}-${count}.safetensors`);
        if (!existsSync(plain)) writeFileSync(plain, safetensors(Array.from({ length: count }, (_, at) => key(at))));
        const file = join(folder, `${shape}-${count}.${kind}`);
        if (!existsSync(file)) {
          const { status, stderr } = spawnSync(command, ["convert", plain, file], { encoding: "utf8" });
          if (status !== 0) throw new Error(`${file}: ${stderr}`);
        }
        yield file;
      }
    }
  }
}

const COLUMNS = [
  ["file", (found) => found.file.padEnd(26)],
  ["first rows", (found) => ms(found.first)],
  ["open", (found) => ms(found.open)],
  ["letter", (found) => ms(found.filter)],
  ["letter of /regex/", (found) => ms(found.expression)],
  ["its first rows", (found) => ms(found.expression_shown)],
  ["busy", (found) => ms(found.expression_busy)],
  ["frames, filter", (found) => frames(found.filter_frames)],
  ["frames, table", (found) => frames(found.scroll_table)],
  ["frames, tree", (found) => frames(found.scroll_tree)],
  ["verify", (found) => ms(found.verify)],
  ["convert", (found) => ms(found.convert)],
  ["elements", (found) => found.elements.toLocaleString("en-US")],
  ["memory, opened", (found) => mb(found.opened_megabytes)],
  ["memory, at the end", (found) => mb(found.megabytes)],
];

const frames = (times) => `${times.map(Math.round).join("/")} ms`.padStart(14);
const ms = (number) => `${Math.round(number)} ms`;
const mb = (number) => `${Math.round(number)} MB`;

const browser = await launch([marked()]);
try {
  console.log(COLUMNS.map(([name], at) => (at ? name : name.padEnd(26))).join("  "));
  for (const file of files(process.argv[2])) {
    const found = await measure(browser, file);
    console.log(COLUMNS.map(([name, cell]) => cell(found).padStart(name.length)).join("  "));
  }
  console.log("(times are maxima; frames: median, 95th percentile and maximum while typing or scrolling; targets at 100,000 keys: first rows under 500 ms, a letter under 50 ms)");
} finally {
  await browser.close();
}
