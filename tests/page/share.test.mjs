// Sharing: links and files equal the command's, and links open.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { becomes, command, fixture, launch, site, withPage } from "./harness.mjs";
import { sparseCheckpoint } from "./make.mjs";

const small = fixture("cerebras/v2.10.0/gpt_small.mdl");
const evil = fixture("attacks/builtins_eval.pt");

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

const run = (...args) => execFileSync(command, ["summary", ...args], { encoding: "utf8", maxBuffer: 1 << 26 });
const linkTo = (file, ...more) => run(file, "--link", site, ...more).trim();

async function share(page, file) {
  await page.setInputFiles("#choose-files", file);
  await page.waitForSelector("#work");
  await page.keyboard.press("s");
  return page.locator(".sheet.sharing .cmd code").first();
}

test("the page's link equals the command's for all options (core)", async () => {
  await withPage(browser, async (page) => {
    const shown = await share(page, evil);
    const waitForLink = async (...more) => {
      const expected = linkTo(evil, ...more);
      await page.waitForFunction((text) => document.querySelector(".sheet.sharing .cmd code")?.textContent === text, expected);
    };
    await waitForLink();
    assert.ok((await shown.textContent()).startsWith(`${site}#s=1.`));
    await page.getByLabel("values that are not tensors").check();
    await waitForLink("--values");
    await page.getByLabel("findings").uncheck();
    await waitForLink("--values", "--no-findings");
    await page.getByRole("radio", { name: "coded" }).click();
    await waitForLink("--keys", "coded");
    await page.getByRole("radio", { name: "hidden" }).click();
    await waitForLink("--keys", "hidden");
  });
});

test("the link's content is shown and copied", async () => {
  await withPage(
    browser,
    async (page) => {
      await share(page, small);
      const preview = page.locator(".seen");
      await preview.getByText("\u00d72").first().waitFor();
      assert.match(await preview.textContent(), /gpt_small\.mdl/);
      assert.match(await preview.textContent(), /blocks\.0\u20131\./);
      await page.keyboard.press("Enter");
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      assert.equal(copied, linkTo(small));
      const print = JSON.parse(run(small, "--to", "json")).fingerprints.structure.short;
      await page.getByText(print).waitFor();
      await page.getByRole("radio", { name: "coded" }).click();
      await page.waitForFunction(() => !document.querySelector(".seen").textContent.includes("blocks"));
      assert.ok(!(await preview.textContent()).includes("weight"));
    },
    { permissions: ["clipboard-read", "clipboard-write"] },
  );
});

test("files equal the command's, byte for byte", async () => {
  await withPage(browser, async (page) => {
    await share(page, small);
    for (const [name, kind] of [["HTML", "html"], ["Markdown", "md"], ["JSON", "json"]]) {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: new RegExp(`^${name}`) }).click(),
      ]);
      assert.equal(download.suggestedFilename(), `gpt_small.mdl.summary.${kind}`);
      assert.equal(readFileSync(await download.path(), "utf8"), run(small, "--to", kind), name);
    }
  });
});

test("files contain statistics and content fingerprint if values were read", async () => {
  await withPage(browser, async (page) => {
    await share(page, small);
    await page.locator("#read-all").click();
    const { content } = JSON.parse(run(small, "--to", "json", "--content")).fingerprints;
    await page.getByText(content.short).waitFor();
    for (const [name, kind] of [["HTML", "html"], ["JSON", "json"]]) {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: new RegExp(`^${name}`) }).click(),
      ]);
      assert.equal(readFileSync(await download.path(), "utf8"), run(small, "--to", kind, "--stats"), name);
    }
    // The link contains statistics on request.
    const expected = linkTo(small, "--stats");
    const shown = page.locator(".sheet.sharing .cmd code").first();
    assert.equal(await shown.textContent(), linkTo(small));
    await page.getByLabel("statistics, rounded").check();
    await page.waitForFunction((text) => document.querySelector(".sheet.sharing .cmd code")?.textContent === text, expected);
    await page.locator(".seen .std").first().waitFor();
    await page.goto("about:blank");
    await page.goto(expected);
    await page.waitForSelector("#work");
    await page.keyboard.press("j");
    const { keys } = JSON.parse(run(small, "--to", "json", "--stats"));
    const contents = await page.locator("#statistics").textContent();
    const std = Number(/std([\d.]+)zeros/.exec(contents)[1]);
    assert.ok(Math.abs(std / keys[0].statistics.std - 1) < 0.004, `${contents} has ${keys[0].statistics.std}`);
  });
});

test("NaN and Inf are reported in files and links as by the command", async () => {
  const file = fixture("stats/values.safetensors");
  await withPage(browser, async (page) => {
    await share(page, file);
    await page.locator("#read-all").click();
    await page.locator('#share-statistics[data-state="read"]').waitFor();
    for (const [name, kind] of [["HTML", "html"], ["Markdown", "md"], ["JSON", "json"]]) {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: new RegExp(`^${name}`) }).click(),
      ]);
      const contents = readFileSync(await download.path(), "utf8");
      assert.equal(contents, run(file, "--to", kind, "--stats"), name);
      if (kind === "json") assert.match(JSON.stringify(JSON.parse(contents).findings), /NaN/);
    }
    await page.getByLabel("statistics, rounded").check();
    const link = linkTo(file, "--stats");
    await page.waitForFunction((text) => document.querySelector(".sheet.sharing .cmd code")?.textContent === text, link);
    await page.goto("about:blank");
    await page.goto(link);
    await page.waitForSelector("#work");
    await page.getByText(/NaN/).first().waitFor();
  });
});

test("files and link contain scan results without reading again", async () => {
  const file = fixture("stats/values.safetensors");
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", file);
    await page.waitForSelector("#work");
    const json = async () => {
      await page.keyboard.press("s");
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: /^JSON/ }).click(),
      ]);
      return JSON.parse(readFileSync(await download.path(), "utf8"));
    };
    assert.equal((await json()).keys[0].statistics, undefined);
    await page.keyboard.press("Escape");
    await page.click("#scan");
    await page.waitForSelector("#scanned");
    const contents = await json();
    const expected = JSON.parse(run(file, "--to", "json", "--stats"));
    assert.deepEqual(contents.keys, expected.keys);
    assert.deepEqual(contents.findings, expected.findings);
    // A scan does not read all stored bytes, so there is no fingerprint of the content.
    assert.equal(contents.fingerprints.content ?? null, null);
    await page.waitForSelector('#share-statistics[data-state="scanned"]');
    await page.getByLabel("statistics, rounded").check();
  });
});

test("reading values can be stopped, and the file stays open", async () => {
  const folder = mkdtempSync(join(tmpdir(), "statelens-share-"));
  try {
    const path = join(folder, "large.pt");
    sparseCheckpoint(path, 10, 250_000_000);
    await withPage(browser, async (page) => {
      await page.setInputFiles("#choose-files", path);
      await page.waitForSelector("#work");
      await page.locator("#filter").fill("9");
      await page.keyboard.press("Escape");
      await page.locator("#filter").fill("w");
      await page.locator("#filter").blur();
      const filtered = await page.locator("#filter").inputValue();
      await page.keyboard.press("s");
      await page.locator("#read-all").click();
      const bar = page.getByRole("progressbar", { name: "Reading everything" });
      await bar.waitFor();
      await page.waitForFunction(() => Number(document.querySelector("[aria-label='Reading everything']")?.ariaValueNow) > 0);
      await page.getByRole("button", { name: "Stop" }).click();
      await bar.waitFor({ state: "detached" });
      // The sheet and the workspace behind it are unchanged.
      assert.ok(await page.locator("#read-all").isVisible());
      assert.equal(await page.locator("#filter").inputValue(), filtered);
      await page.keyboard.press("Escape");
      await page.keyboard.press("End");
      await page.locator(".insp").getByText("[250000000]").first().waitFor();
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the inspector shows the statistics of a tensor", async () => {
  await withPage(browser, async (page) => {
    await page.setInputFiles("#choose-files", small);
    await page.waitForSelector("#work");
    await page.keyboard.press("j");
    const contents = await page.locator("#statistics").textContent();
    const { keys } = JSON.parse(run(small, "--to", "json", "--stats"));
    const { min, max, mean, std } = keys[0].statistics;
    for (const value of [min, max, mean, std]) {
      const digits = String(Number(Math.abs(value).toPrecision(4)));
      assert.ok(contents.includes(digits), `${contents} has ${digits}`);
    }
  });
});

test("a link opens to the structure, without values, and says so (core)", async () => {
  await withPage(browser, async (page) => {
    await page.goto(linkTo(small));
    await page.waitForSelector("#work");
    await page.waitForSelector("#summary-only");
    assert.equal(await page.getByRole("button", { name: /^Convert/ }).count(), 0);
    assert.match(await page.locator(".top").textContent(), /gpt_small\.mdl/);
    assert.match(await page.locator(".top").textContent(), /32\.19 k params|90\.40 k params/);
    await page.keyboard.press("j");
    await page.waitForSelector("#no-values");
    assert.match(await page.locator(".insp").textContent(), /\[97, 32\]/);
    // The link can be shared again.
    await page.keyboard.press("s");
    await page.waitForFunction(
      (text) => document.querySelector(".sheet.sharing .cmd code")?.textContent === text,
      linkTo(small),
    );
    await page.keyboard.press("Escape");
    // A file replaces the link.
    await page.setInputFiles("#choose-files", small);
    await page.getByRole("button", { name: /^Convert/ }).waitFor();
  });
});

test("a link contains findings, and another link replaces it", async () => {
  await withPage(browser, async (page) => {
    await page.goto(linkTo(small));
    await page.waitForSelector("#work");
    const other = linkTo(evil);
    await page.evaluate((hash) => (location.hash = hash), other.slice(other.indexOf("#")));
    await page.waitForFunction(() => document.querySelector(".top")?.textContent.includes("builtins_eval.pt"));
    await page.locator(".notice.danger").waitFor();
  });
});

test("a file replaces the link in the URL, and Back restores it", async () => {
  await withPage(browser, async (page) => {
    const [first, second] = [linkTo(small), linkTo(evil)];
    const hash = () => page.evaluate(() => location.hash);
    const named = (name) => page.waitForFunction((name) => document.querySelector(".top .name")?.textContent.includes(name), name);
    await page.goto(first);
    await named("gpt_small.mdl");
    await page.goto(second);
    await named("builtins_eval.pt");
    await page.setInputFiles("#choose-files", small);
    await page.getByRole("button", { name: /^Convert/ }).waitFor();
    await becomes(hash, "#file=gpt_small.mdl");
    await page.goBack();
    await page.waitForSelector("#summary-only");
    assert.equal(`${site}${await hash()}`, second);
    await page.goBack();
    await named("gpt_small.mdl");
    assert.equal(`${site}${await hash()}`, first);
    await page.setInputFiles("#choose-files", evil);
    await page.getByRole("button", { name: /^Convert/ }).waitFor();
    // The same link opens again.
    await page.evaluate((hash) => (location.hash = hash), first.slice(first.indexOf("#")));
    await page.waitForSelector("#summary-only");
  });
});

test("damaged, huge and foreign links are refused with an error", async () => {
  await withPage(browser, async (page) => {
    const link = linkTo(small);
    const refused = async (address, sentence) => {
      await page.goto("about:blank");
      await page.goto(address);
      await page.waitForSelector("#error");
      assert.match(await page.locator("#error h1").textContent(), sentence);
    };
    await refused(link.slice(0, -9), /This link is damaged/);
    await refused(`${link.slice(0, 200)}%00${link.slice(203)}`, /This link is damaged/);
    await refused(`${site}#s=1.${"A".repeat(20_000)}`, /the limit is 16000/);
    await refused(`${site}#s=9.AAAA`, /made by a newer Statelens/);
    // Other fragments of the URL are ignored.
    await page.goto("about:blank");
    await page.goto(`${site}#top`);
    await page.waitForSelector("#start");
  });
});

test("the HTML page opens from disk, filters, sorts and folds, without requests (core)", async () => {
  const context = await browser.newContext({ offline: true });
  const errors = [];
  context.on("console", (message) => errors.push(message.text()));
  context.on("weberror", (event) => errors.push(String(event.error())));
  try {
    const page = await context.newPage();
    const requested = [];
    page.on("request", (request) => requested.push(request.url()));
    await page.setContent("<p>");
    const html = run(small, "--to", "html", "--stats");
    // Like a file, the page has its own policy.
    await page.goto(`data:text/html;base64,${Buffer.from(html).toString("base64")}`);
    const rows = page.locator("tbody tr");
    await rows.first().waitFor();
    assert.ok((await rows.count()) < 130, "layers are folded");
    // The statistics of a fold combine those of its layers.
    const columns = await page.getByRole("columnheader").allTextContents();
    const folded = page.getByRole("row", { name: "blocks.0–1.fc1.weight" });
    const least = (await folded.locator("td").allTextContents())[columns.indexOf("min")];
    const { keys } = JSON.parse(run(small, "--to", "json", "--stats"));
    const layers = keys.filter(({ key }) => /blocks\.\d+\.fc1\.weight$/.test(key));
    assert.equal(layers.length, 2);
    const expected = Math.min(...layers.map(({ statistics }) => statistics.min));
    assert.equal(Number(least.replace("−", "-")), Number(expected.toPrecision(4)));
    assert.match(await page.locator("#model").textContent(), /layers2/);
    assert.match(await page.locator("header").textContent(), /A92Q-SNGB-Q7MA-DQGK/);
    // All columns fit into the window, and empty ones are hidden.
    await page.setViewportSize({ width: 1440, height: 900 });
    const [shown, whole] = await page.locator(".scroll").evaluate((table) => [table.clientWidth, table.scrollWidth]);
    assert.ok(whole <= shown, `the table is ${whole} px wide in ${shown} px`);
    assert.equal(await page.getByRole("columnheader", { name: "inf", exact: true }).count(), 0);
    await page.getByRole("checkbox", { name: "fold layers" }).click();
    assert.equal(await rows.count(), 167);
    await page.getByRole("searchbox").fill("ln_f");
    assert.equal(await rows.count(), 2);
    await page.getByRole("searchbox").fill("");
    await page.getByRole("button", { name: "bytes" }).click();
    assert.match(await rows.first().textContent(), /fc1\.weight|fc2\.weight|exp_avg/);
    await page.getByRole("button", { name: "global_step" }).click();
    assert.equal(await rows.count(), 1);
    assert.equal(requested.filter((url) => !url.startsWith("data:") && !url.startsWith("about:")).length, 0);
    assert.deepEqual(errors, []);
  } finally {
    await context.close();
  }
});

test("the picture is that of the command, and is copied and saved", async () => {
  await withPage(
    browser,
    async (page) => {
      await share(page, small);
      const expected = run(small, "--to", "svg");
      await page.waitForSelector("#share-picture");
      const shown = async () => decodeURIComponent((await page.getAttribute("#share-picture img", "src")).slice("data:image/svg+xml,".length));
      assert.equal(await shown(), expected);
      const [vector] = await Promise.all([page.waitForEvent("download"), page.click("#save-svg")]);
      assert.equal(vector.suggestedFilename(), "gpt_small.mdl.summary.svg");
      assert.equal(readFileSync(await vector.path(), "utf8"), expected);
      const [picture] = await Promise.all([page.waitForEvent("download"), page.click("#save-png")]);
      const png = readFileSync(await picture.path());
      assert.deepEqual([png.subarray(1, 4).toString(), png.readUInt32BE(16), png.readUInt32BE(20)], ["PNG", 2400, 1260]);
      await page.click("#copy-picture");
      await becomes(() => page.textContent('#share-picture [role="status"]'), "Copied");
      const types = await page.evaluate(async () => (await navigator.clipboard.read()).flatMap((item) => item.types));
      assert.deepEqual(types, ["image/png"]);
      // Findings may name keys, so they are left out with the names.
      await page.getByRole("radio", { name: "hidden" }).click();
      await page.waitForSelector(".seen:not(.late)");
    },
    { permissions: ["clipboard-read", "clipboard-write"] },
  );
});
