// Every pair of the page's jobs runs concurrently: each gives the same result as alone, whichever ends last and whatever is
// dropped meanwhile.

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

/** Results of jobs that ran alone. */
const resultsAlone = {};
const resultAlone = (job, files) => (resultsAlone[`${job} ${files.a}`] ??= jobs[job].expected(files));

/** Milliseconds per piece of a file in a slow page. */
const [SLOW, SLOWER] = [8, 40];

const PAIRS = [
  ["verify", "write"],
  ["scan", "verify"],
  ["scan", "write"],
  ["scan", "compare"],
  ["verify", "compare"],
  ["write", "compare"],
];

// The tests mostly wait, so two can run at once.
describe("every pair", { concurrency: 2 }, () => {
  for (const pair of PAIRS) {
    for (const last of pair) {
      test(`${pair.join(" and ")} give the same results concurrently as alone if ${last} ends last`, async () => {
        const files = small();
        // A comparison takes longer, and has a screen of its own, which has to be closed before the other result is read.
        const compares = pair.includes("compare");
        const ends = [...pair].sort((one, other) => (compares ? (one === "compare" ? -1 : 1) : one === last ? 1 : other === last ? -1 : 0));
        const slower = (compares ? 4 : 2) * SLOWER;
        await slowTab({ streams: last === pair[0] ? [slower, SLOW] : [SLOW, slower] }, async (page) => {
          await open(page, files.a);
          for (const job of pair) await jobs[job].prepare?.(page);
          for (const job of pair) await jobs[job].begin(page, files);
          const first = await jobs[ends[0]].end(page);
          // Checked before the results are compared, because computing the expected one may take longer than the other job.
          if (ends[1] === last) assert.ok(await jobs[last].isRunning(page), `${last} ended before ${ends[0]}`);
          same(ends[0], first, await resultAlone(ends[0], files));
          same(ends[1], await jobs[ends[1]].end(page), await resultAlone(ends[1], files));
        });
      });
    }
  }

  const NOTICES = { scan: /scanning the values of c\.safetensors/i, verify: /reading all of c\.safetensors/i, write: /writing c\.pt/i, compare: /comparing c\.safetensors/i };

  for (const pair of PAIRS) {
    test(`dropping another file during ${pair.join(" and ")} stops both and gives its own results`, async () => {
      const files = small();
      // Not the file of the first comparison: choosing the same file again causes no change event.
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
        for (const job of pair) assert.match(notice, NOTICES[job]);
        await page.getByRole("button", { name: "OK" }).click();
        assert.deepEqual(downloads, [], "stopped jobs save nothing");
        // The same jobs with the other file.
        for (const job of pair) await jobs[job].prepare?.(page);
        for (const job of pair) await jobs[job].begin(page, others);
        for (const job of [...pair].reverse()) same(job, await jobs[job].end(page), await resultAlone(job, others));
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
        for (const job of [...pair].reverse()) same(job, await jobs[job].end(page), await resultAlone(job, files));
      });
    });
  }
});
