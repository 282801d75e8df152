// What is done at once, and what happens to it when something else is opened: no job gets bytes of
// another file, none is lost without a word, and each gives what it gives alone.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { choosing, command, launch, root, site, withPage, withSlowPage } from "./harness.mjs";
import { denseCheckpoint } from "./make.mjs";

/** A loaded machine reads slowly. */
const LONG = 300_000;

let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), "statelens-session-"));
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Two files, large enough that reading one takes a while. */
let made;
async function files() {
  made ??= (async () => {
    const [a, b] = ["a", "b"].map((name) => join(folder, `${name}.safetensors`));
    for (let tensors = 64; ; tensors *= 2) {
      denseCheckpoint(a, tensors, 1);
      let millis = 0;
      await tab(async (page) => {
        await open(page, a);
        await page.keyboard.press("s");
        const began = Date.now();
        await page.getByRole("button", { name: /^Read all values/ }).click();
        await page.getByText("The files hold the statistics").waitFor({ timeout: LONG });
        millis = Date.now() - began;
      });
      if (millis > 4000 || tensors >= 128) {
        console.log(`# ${tensors * 8} MiB, read in ${millis} ms`);
        denseCheckpoint(b, tensors + 1, 1000);
        return { a, b };
      }
    }
  })();
  return made;
}

/** A page that saves what it writes as downloads. */
const tab = (work) =>
  withPage(browser, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await work(page);
  });

async function open(page, file) {
  await page.setInputFiles("#choose-files", file);
  await page.locator("#work .top .name", { hasText: basename(file) }).waitFor({ timeout: LONG });
}

/** Reports and summaries are saved as downloads, too. */
const isWritten = (download) => /\.(pt|mdl)$/.test(download.suggestedFilename());

async function saved(page, click, predicate = (download) => !isWritten(download)) {
  const [download] = await Promise.all([page.waitForEvent("download", { predicate, timeout: LONG }), click()]);
  return readFileSync(await download.path());
}

const run = (...args) => {
  const { status, stdout, stderr } = spawnSync(command, args, { maxBuffer: 1 << 28 });
  assert.ok(status === 0 || status === 1, String(stderr));
  return stdout;
};

/** What can be done at once: begins it and leaves it alone; whether it is still at it; waits for what comes of it. */
const jobs = {
  measure: {
    async begin(page) {
      await page.keyboard.press("s");
      await page.getByRole("button", { name: /^Read all values/ }).click();
      await page.getByRole("progressbar", { name: "Reading values" }).waitFor();
      await page.keyboard.press("Escape");
      await page.waitForSelector(".sheet", { state: "detached" });
    },
    async end(page) {
      await page.keyboard.press("s");
      await page.getByText("The files hold the statistics").waitFor({ timeout: LONG });
      const json = await saved(page, () => page.getByRole("button", { name: /^JSON/ }).click());
      await page.keyboard.press("Escape");
      return json;
    },
    async is_going(page) {
      await page.keyboard.press("s");
      await page.waitForSelector(".sheet.sharing");
      const going = await page.getByRole("progressbar", { name: "Reading values" }).isVisible();
      await page.keyboard.press("Escape");
      return going;
    },
    expected: ({ a }) => run("summary", a, "--to", "json", "--stats"),
  },
  verify: {
    async begin(page) {
      await page.keyboard.press("v");
      await page.click("#verify-begin");
      await page.waitForSelector("#verify-run");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
    },
    async end(page) {
      await page.click("#verify");
      await page.waitForSelector("#verify-done", { timeout: LONG });
      const report = await saved(page, () => page.click("#verify-save"));
      await page.keyboard.press("Escape");
      return report;
    },
    is_going: async (page) => /verifying/.test(await page.textContent("#verify")),
    expected: ({ a }) => run("verify", a, "--json"),
  },
  write: {
    /** Lays out what is written, so that it can begin at once. */
    async prepare(page) {
      await laid(page);
      await page.keyboard.press("Escape");
    },
    async begin(page) {
      await page.keyboard.press("c");
      await page.waitForSelector("#write:not([disabled])");
      page.written = page.waitForEvent("download", { predicate: isWritten, timeout: LONG });
      page.written.catch(() => {});
      await page.click("#write");
      await page.waitForSelector("#convert-run");
      await page.getByRole("button", { name: "Browse meanwhile" }).click();
    },
    async end(page) {
      return readFileSync(await (await page.written).path());
    },
    is_going: async (page) => /writing \d+ %/.test(await page.textContent(".status")),
    expected: ({ a }) => {
      const output = join(folder, "expected.pt");
      execFileSync(command, ["convert", a, output, "--to", "torch", "--lossy", "--force"], { stdio: "pipe" });
      return readFileSync(output);
    },
  },
  scan: {
    async begin(page) {
      await page.click("#scan");
      await page.waitForSelector("#scanning");
    },
    async end(page) {
      await page.waitForSelector("#scanned", { timeout: LONG });
      // The columns of values, of the rows that are in view.
      return Buffer.from((await page.locator("#work .row").allTextContents()).join("\n"));
    },
    is_going: (page) => page.isVisible("#scanning"),
    async expected({ a }) {
      let rows;
      await tab(async (page) => {
        await open(page, a);
        // Alone it can be over before anything is seen of it.
        await page.click("#scan");
        rows = await this.end(page);
      });
      assert.match(String(rows), /\d\.\d+/);
      return rows;
    },
  },
  // What has a screen of its own: it can only be begun last.
  compare: {
    async begin(page, { b }) {
      const chooser = await choosing(page, () => page.keyboard.press("d"));
      await chooser.setFiles(b);
      await page.waitForSelector("#compare");
    },
    async end(page) {
      await page.waitForSelector("#save-report:not([disabled])", { timeout: LONG });
      const report = await saved(page, () => page.click("#save-report"));
      await page.keyboard.press("Escape");
      await page.waitForSelector("#work");
      return report;
    },
    is_going: async () => true,
    expected: ({ a, b }) => run("diff", a, b, "--json"),
  },
};

/** Opens the convert sheet and waits for the plan of a PyTorch file. */
async function laid(page) {
  await page.keyboard.press("c");
  await page.click('[role="radio"]:has-text("PyTorch")');
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

/** What is answered at once, as it is shown. */
const questions = {
  values: async (page) => {
    await page.keyboard.press("End");
    await page.waitForSelector(".insp table.vals");
    return (await page.locator(".insp .path, .insp table.vals").allTextContents()).join();
  },
  plan: async (page) => {
    await laid(page);
    const text = await page.textContent(".plan");
    await page.keyboard.press("Escape");
    return text;
  },
  share: async (page) => {
    await page.keyboard.press("s");
    const text = await page.locator(".sheet.sharing .cmd code").first().textContent();
    await page.keyboard.press("Escape");
    return text;
  },
};

let alone;
async function expected(job) {
  const given = await files();
  alone ??= {};
  return (alone[job] ??= jobs[job].expected(given));
}

function same(name, got, wanted) {
  assert.ok(got.equals(wanted), `${name}: ${got.length} bytes, expected ${wanted.length}, which are others`);
}

test("a conversion that goes on when values were read writes its own file, whatever is dropped", async (t) => {
  const { a, b } = await files();
  const wanted = await expected("write");
  await tab(async (page) => {
    await open(page, a);
    await jobs.write.prepare(page);
    await jobs.measure.begin(page);
    // So far that it ends first.
    await page.keyboard.press("s");
    await page.waitForFunction(() => Number(document.querySelector("[aria-label='Reading values']")?.ariaValueNow) >= 85, null, { timeout: LONG });
    await page.keyboard.press("Escape");
    await jobs.write.begin(page);
    await page.keyboard.press("s");
    await page.getByText("The files hold the statistics").waitFor({ timeout: LONG });
    await page.keyboard.press("Escape");
    if (!(await jobs.write.is_going(page))) {
      // A fast machine: nothing is left to mix up, and the bytes are what they should be.
      t.diagnostic("it was written before the values were read: the question was not seen");
      same("written", await jobs.write.end(page), wanted);
      return;
    }
    await page.setInputFiles("#choose-files", b);
    // It is asked, and nothing is lost without the user's word.
    const asked = page.waitForSelector("#stop").then(() => "asked");
    const replaced = page.locator("#work .top .name", { hasText: basename(b) }).waitFor({ timeout: LONG }).then(() => "opened");
    if ((await Promise.race([asked, replaced])) === "opened") {
      const written = await jobs.write.end(page).catch(() => assert.fail("it ended without a word"));
      same("written under the name of the first", written, wanted);
      assert.fail("the other was opened without a question");
    }
    await page.click("#keep-writing");
    same("written", await jobs.write.end(page), wanted);
    assert.match(await page.textContent("#work .top .name"), new RegExp(basename(a)));
  });
});

for (const job of ["measure", "verify", "write"]) {
  test(`what is asked during ${job} is answered as ever, and changes nothing about it`, async () => {
    const given = await files();
    await tab(async (page) => {
      await open(page, given.a);
      const answers = {};
      for (const [name, ask] of Object.entries(questions)) answers[name] = await ask(page);
      await page.keyboard.press("Home");
      await jobs[job].prepare?.(page);
      await jobs[job].begin(page, given);
      for (const [name, ask] of Object.entries(questions)) {
        // The convert sheet shows how far it is.
        if (job === "write" && name === "plan") continue;
        assert.equal(await ask(page), answers[name], name);
      }
      same(job, await jobs[job].end(page), await expected(job));
    });
  });
}

test("what is stopped stops, and what goes on beside it is whole", async () => {
  const given = await files();
  await tab(async (page) => {
    await open(page, given.a);
    await jobs.write.prepare(page);
    await jobs.write.begin(page);
    await jobs.verify.begin(page);
    await page.click("#verify");
    await page.click("#verify-cancel");
    await page.waitForSelector("#verify-form");
    await page.keyboard.press("Escape");
    same("write", await jobs.write.end(page), await expected("write"));
    // And begun again, it is whole, too.
    await page.keyboard.press("Escape");
    await jobs.verify.begin(page);
    same("verify", await jobs.verify.end(page), await expected("verify"));
  });
});

for (const [job, words] of [
  ["measure", /Reading all values of a\.safetensors was stopped because another file was opened/],
  ["verify", /Verifying a\.safetensors was stopped because another file was opened/],
  ["write", /Writing a\.pt was stopped because another file was opened\. What was written is removed/],
]) {
  test(`opening another file stops ${job}, and says so; of the other nothing is missing`, async () => {
    const { a, b } = await files();
    await tab(async (page) => {
      const downloads = [];
      page.on("download", (download) => downloads.push(download.suggestedFilename()));
      await open(page, a);
      await jobs[job].prepare?.(page);
      await jobs[job].begin(page, { a, b });
      await page.setInputFiles("#choose-files", b);
      if (job === "write") await page.click("#stop-and-open");
      await page.locator("#work .top .name", { hasText: basename(b) }).waitFor();
      assert.match(await page.textContent("#notice"), words);
      // Nothing of it is heard any more, and nothing of it is in the way.
      await jobs.verify.begin(page);
      same("verify", await jobs.verify.end(page), run("verify", b, "--json"));
      assert.deepEqual(downloads.filter((name) => name.endsWith(".pt")), []);
      assert.doesNotMatch(await page.textContent(".status"), /writing/);
      await page.getByRole("button", { name: "OK" }).click();
      assert.equal(await page.$("#notice"), null);
    });
  });
}

/** Three small files, for pages that read slowly. */
let few;
function small() {
  few ??= ["c", "d", "e"].reduce((made, name, at) => {
    const path = join(folder, `${name}.safetensors`);
    denseCheckpoint(path, 6 + at, 2000 * (at + 1));
    return { ...made, ["abc"[at]]: path };
  }, {});
  return few;
}

/** What a job gives of a file when nothing goes on beside it. */
const given = {};
const aloneOf = (job, files) => (given[`${job} ${files.a}`] ??= jobs[job].expected(files));

/** Milliseconds that each piece of a file takes in a slowed page. */
const [SLOW, SLOWER] = [8, 40];

/** A page whose worker reads files slowly, and that saves what it writes as downloads. */
const slowed = (slowness, work) =>
  withSlowPage(browser, slowness, async (page) => {
    await page.addInitScript(() => delete window.showSaveFilePicker);
    await page.reload();
    await page.waitForSelector("#start");
    await work(page);
  });

const PAIRS = [
  ["measure", "verify"],
  ["measure", "write"],
  ["verify", "write"],
  ["scan", "verify"],
  ["scan", "write"],
  ["scan", "compare"],
  ["measure", "compare"],
  ["verify", "compare"],
  ["write", "compare"],
];

for (const pair of PAIRS) {
  for (const last of pair) {
    test(`${pair.join(" and ")} at once, of which ${last} ends last, give what each gives alone`, async () => {
      const files = small();
      // A comparison has a screen of its own, which has to be left before others are looked at; and it works longer.
      const compares = pair.includes("compare");
      const ends = [...pair].sort((one, other) => (compares ? (one === "compare" ? -1 : 1) : one === last ? 1 : other === last ? -1 : 0));
      const slower = compares ? 4 * SLOWER : SLOWER;
      await slowed({ streams: last === pair[0] ? [slower, SLOW] : [SLOW, slower] }, async (page) => {
        await open(page, files.a);
        for (const job of pair) await jobs[job].prepare?.(page);
        for (const job of pair) await jobs[job].begin(page, files);
        same(ends[0], await jobs[ends[0]].end(page), await aloneOf(ends[0], files));
        if (ends[1] === last) assert.ok(await jobs[last].is_going(page), `${last} ended before ${ends[0]}`);
        same(ends[1], await jobs[ends[1]].end(page), await aloneOf(ends[1], files));
      });
    });
  }
}

const SAID = { scan: /scanning the values of c\.safetensors/i, measure: /reading all values of c\.safetensors/i, verify: /verifying c\.safetensors/i, write: /writing c\.pt/i, compare: /comparing c\.safetensors/i };

for (const pair of PAIRS) {
  test(`another file that is dropped while ${pair.join(" and ")} go on stops both and gets what is its own`, async () => {
    const files = small();
    // Not the one that it is compared with: a dialog that gives the same file again tells of no change.
    const others = { a: files.c, b: files.a };
    await slowed({ streams: [SLOWER] }, async (page) => {
      const downloads = [];
      page.on("download", (download) => downloads.push(download.suggestedFilename()));
      await open(page, files.a);
      for (const job of pair) await jobs[job].prepare?.(page);
      for (const job of pair) await jobs[job].begin(page, files);
      await page.setInputFiles("#choose-files", files.c);
      if (pair.includes("write")) await page.click("#stop-and-open");
      await page.locator("#work .top .name", { hasText: basename(files.c) }).waitFor({ timeout: LONG });
      const notice = await page.textContent("#notice");
      for (const job of pair) assert.match(notice, SAID[job]);
      await page.getByRole("button", { name: "OK" }).click();
      assert.deepEqual(downloads, [], "nothing of what was stopped is saved");
      // The same again, of the other file.
      for (const job of pair) await jobs[job].prepare?.(page);
      for (const job of pair) await jobs[job].begin(page, others);
      for (const job of [...pair].reverse()) same(job, await jobs[job].end(page), await aloneOf(job, others));
    });
  });
}

for (const pair of PAIRS.filter((pair) => pair.includes("write"))) {
  test(`${pair.join(" and ")} go on when the file that is dropped is not to be opened`, async () => {
    const files = small();
    await slowed({ streams: [SLOWER] }, async (page) => {
      await open(page, files.a);
      for (const job of pair) await jobs[job].prepare?.(page);
      for (const job of pair) await jobs[job].begin(page, files);
      await page.setInputFiles("#choose-files", files.c);
      await page.click("#keep-writing");
      for (const job of [...pair].reverse()) same(job, await jobs[job].end(page), await aloneOf(job, files));
    });
  });
}

/** The names of the files that pages keep in the browser's private file system. */
const kept = (page) =>
  page.evaluate(async () => {
    const top = await navigator.storage.getDirectory();
    const names = [];
    for await (const [name, handle] of top) {
      if (handle.kind === "directory") for await (const inside of handle.keys()) names.push(`${name}/${inside}`);
    }
    return names;
  });

/** Writes a file through the private file system. */
async function compressed(page, file) {
  await open(page, file);
  await page.keyboard.press("c");
  for (const choice of ["Cerebras", "LZ4"]) await page.click(`[role="radio"]:has-text("${choice}")`);
  await page.waitForSelector(".plan:not(.late)");
  for (const box of await page.$$(".loss input")) await box.check();
  await page.waitForSelector("#write:not([disabled])");
}

test("a second tab leaves what the first one has finished, and a later one clears it away", async () => {
  const file = `${root}tests/fixtures/torch/zip_training_ckpt.pt`;
  const context = await browser.newContext({ acceptDownloads: true });
  await context.addInitScript(() => delete window.showSaveFilePicker);
  const tabs = async () => {
    const page = await context.newPage();
    await page.goto(site);
    await page.waitForSelector("#start");
    return page;
  };
  const first = await tabs();
  await compressed(first, file);
  await saved(first, () => first.click("#write"), isWritten);
  await first.waitForSelector("#convert-done");
  assert.equal((await kept(first)).length, 1);
  const second = await tabs();
  await open(second, file);
  await second.waitForTimeout(1000);
  assert.equal((await kept(first)).length, 1, "the second tab removed it");
  // The result is there: it can be opened, and read to its end.
  await first.click("#open-result");
  await first.waitForFunction(() => document.title.includes(".mdl"));
  await first.keyboard.press("v");
  await first.click("#verify-begin");
  await first.waitForSelector("#verify-done");
  await first.close();
  const third = await tabs();
  await third.waitForFunction(async () => {
    const top = await navigator.storage.getDirectory();
    const folder = await top.getDirectoryHandle("statelens", { create: true });
    for await (const _ of folder.keys()) return false;
    return true;
  });
  await context.close();
});

test("what is stopped while it is written leaves nothing in the private file system", async () => {
  const { a } = await files();
  await tab(async (page) => {
    await compressed(page, a);
    await page.click("#write");
    await page.waitForSelector("#convert-run");
    await page.getByRole("button", { name: "Browse meanwhile" }).click();
    await page.waitForFunction(() => /writing [1-9]/.test(document.querySelector(".status").textContent), null, { timeout: LONG });
    assert.equal((await kept(page)).length, 1);
    await page.setInputFiles("#choose-files", `${root}tests/fixtures/torch/zip_training_ckpt.pt`);
    await page.click("#stop-and-open");
    await page.waitForFunction(() => document.title.startsWith("zip_training_ckpt.pt"));
    await page.waitForFunction(async () => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("statelens");
      for await (const _ of folder.keys()) return false;
      return true;
    });
  });
});

test("leaving the page while a file is written asks, and only then", async () => {
  const { a } = await files();
  await tab(async (page) => {
    const asked = [];
    page.on("dialog", async (dialog) => {
      asked.push(dialog.type());
      await dialog.dismiss();
    });
    await open(page, a);
    await jobs.write.prepare(page);
    await jobs.write.begin(page);
    await page.close({ runBeforeUnload: true });
    await page.waitForTimeout(500);
    assert.deepEqual(asked, ["beforeunload"]);
    same("write", await jobs.write.end(page), await expected("write"));
    await page.waitForFunction(() => !/writing/.test(document.querySelector(".status").textContent));
    await page.close({ runBeforeUnload: true });
    await page.waitForEvent("close", { timeout: 5000 }).catch(() => {});
    assert.ok(page.isClosed());
    assert.equal(asked.length, 1);
  });
});

test("a folder of 3,000 files is looked at by little of each", async () => {
  const many = join(folder, "many");
  mkdirSync(many);
  const filler = Buffer.alloc(300_000, "no checkpoint ");
  for (let at = 0; at < 3000; at++) writeFileSync(join(many, `part_${at}.dat`), filler);
  writeFileSync(join(many, "model.pt"), readFileSync(`${root}tests/fixtures/torch/zip_training_ckpt.pt`));
  await tab(async (page) => {
    const began = Date.now();
    await page.setInputFiles("#choose-folder", many);
    await page.locator("#work .top .name", { hasText: "model.pt" }).waitFor({ timeout: LONG });
    const said = await page.textContent(".status");
    console.log(`# 3,001 files: ${Date.now() - began} ms, ${said}`);
    const [, number, unit] = /looked at 3,001 files \(([\d.]+) (kB|MB|GB)\)/.exec(said) ?? [];
    const bytes = Number(number) * { kB: 1e3, MB: 1e6, GB: 1e9 }[unit];
    // 20 kB of the beginning and of the end, where some formats have their magic number.
    assert.ok(bytes < 3001 * 41_000, `${said}: more than 41 kB of each`);
    // What was only looked at is no part of it.
    assert.match(said, /read all of \d+(\.\d+)? kB/);
  });
});
