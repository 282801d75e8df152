// Every pair of what the page can do, at once: each gives what it gives alone, whichever ends last, and
// whatever is dropped meanwhile.

import assert from "node:assert/strict";
import { basename, join } from "node:path";
import { describe, test } from "node:test";
import { LONG, browser, folder, jobs, open, same, slowTab } from "./jobs.mjs";
import { denseCheckpoint } from "./make.mjs";

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

const PAIRS = [
  ["verify", "write"],
  ["scan", "verify"],
  ["scan", "write"],
  ["scan", "compare"],
  ["verify", "compare"],
  ["write", "compare"],
];

// They wait more than they work.
describe("every pair", { concurrency: 2 }, () => {
  for (const pair of PAIRS) {
    for (const last of pair) {
      test(`${pair.join(" and ")} run concurrently with ${last} ending last give the same results as alone`, async () => {
        const files = small();
        // A comparison has a screen of its own, which has to be left before others are looked at; and it works longer.
        const compares = pair.includes("compare");
        const ends = [...pair].sort((one, other) => (compares ? (one === "compare" ? -1 : 1) : one === last ? 1 : other === last ? -1 : 0));
        const slower = (compares ? 4 : 2) * SLOWER;
        await slowTab({ streams: last === pair[0] ? [slower, SLOW] : [SLOW, slower] }, async (page) => {
          await open(page, files.a);
          for (const job of pair) await jobs[job].prepare?.(page);
          for (const job of pair) await jobs[job].begin(page, files);
          const first = await jobs[ends[0]].end(page);
          // Before it is compared: what it gives alone may take longer to make than the other job takes.
          if (ends[1] === last) assert.ok(await jobs[last].isRunning(page), `${last} ended before ${ends[0]}`);
          same(ends[0], first, await aloneOf(ends[0], files));
          same(ends[1], await jobs[ends[1]].end(page), await aloneOf(ends[1], files));
        });
      });
    }
  }

  const SAID = { scan: /scanning the values of c\.safetensors/i, verify: /reading all of c\.safetensors/i, write: /writing c\.pt/i, compare: /comparing c\.safetensors/i };

  for (const pair of PAIRS) {
    test(`dropping another file during ${pair.join(" and ")} stops both and gives its own results`, async () => {
      const files = small();
      // Not the one that it is compared with: a dialog that gives the same file again tells of no change.
      const others = { a: files.c, b: files.a };
      await slowTab({ streams: [SLOWER] }, async (page) => {
        const downloads = [];
        page.on("download", (download) => downloads.push(download.suggestedFilename()));
        await open(page, files.a);
        for (const job of pair) await jobs[job].prepare?.(page);
        for (const job of pair) await jobs[job].begin(page, files);
        await page.setInputFiles("#choose-files", files.c);
        if (pair.includes("write")) await page.click("#stop-and-open");
        await page.locator(`#work[data-name*="${basename(files.c)}"]`).waitFor({ timeout: LONG });
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
    test(`${pair.join(" and ")} continue if a dropped file is not opened`, async () => {
      const files = small();
      await slowTab({ streams: [SLOWER] }, async (page) => {
        await open(page, files.a);
        for (const job of pair) await jobs[job].prepare?.(page);
        for (const job of pair) await jobs[job].begin(page, files);
        await page.setInputFiles("#choose-files", files.c);
        await page.click("#keep-writing");
        for (const job of [...pair].reverse()) same(job, await jobs[job].end(page), await aloneOf(job, files));
      });
    });
  }
});
