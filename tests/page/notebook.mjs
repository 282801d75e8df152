// Shows a checkpoint in a real JupyterLab. `cargo xtask wheel --test` runs this, with the Python of an environment that has
// JupyterLab, anywidget and pystatelens.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const { STATELENS_CHROMIUM: executablePath, STATELENS_PYTHON: python, STATELENS_PICTURES: pictures } = process.env;
if (!executablePath || !python) throw new Error("run this test with `cargo xtask wheel --test`");

const fixtures = fileURLToPath(new URL("../../target/fixtures/", import.meta.url));
const file = `${fixtures}cerebras/v2.10.0/gpt_small.mdl`;
const key = "model.model.wte.weight";

const CELLS = [
  `import pystatelens\nview = pystatelens.view(${JSON.stringify(file)}, height=520)\nview`,
  'print("selected:", view.selected, view.tensor.shape, view.tensor.numpy().dtype)',
  "view.close()",
  `model = pystatelens.open(${JSON.stringify(`${fixtures}cerebras/v2.10.0/seed.pt`)})\nmodel.view(height=400)`,
];

const folder = mkdtempSync(join(tmpdir(), "statelens notebook "));
const cell = (source, at) => ({ cell_type: "code", id: `cell-${at}`, execution_count: null, metadata: {}, outputs: [], source });
const kernelspec = { name: "python3", display_name: "Python 3", language: "python" };
writeFileSync(join(folder, "view.ipynb"), JSON.stringify({ cells: CELLS.map(cell), metadata: { kernelspec }, nbformat: 4, nbformat_minor: 5 }));

/** Starts JupyterLab on a free port; returns its process and its address. */
async function jupyter() {
  const options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", `--ServerApp.root_dir=${folder}`, "--IdentityProvider.token=", "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"];
  // Settings and kernels of this machine have no effect.
  const settings = join(folder, "settings");
  mkdirSync(settings);
  const env = { ...process.env, JUPYTER_CONFIG_DIR: settings, JUPYTER_DATA_DIR: settings, JUPYTER_RUNTIME_DIR: settings, JUPYTERLAB_SETTINGS_DIR: settings, JUPYTERLAB_WORKSPACES_DIR: settings };
  const lab = spawn(python, ["-m", "jupyterlab", ...options], { env, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const address = await new Promise((found, failed) => {
    lab.stderr.on("data", (data) => {
      log += data;
      const named = /(http:\/\/127\.0\.0\.1:\d+)\/lab/.exec(log);
      if (named) found(named[1]);
    });
    lab.on("exit", () => failed(new Error(`JupyterLab ended:\n${log}`)));
  });
  return { lab, address };
}

const { lab, address } = await jupyter();
const browser = await chromium.launch({ executablePath, args: ["--headless", "--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1500, height: 1100 } });
const picture = (name) => pictures && page.screenshot({ path: join(pictures, `${name}.png`) });
try {
  page.setDefaultTimeout(90_000);
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  const foreign = [];
  page.on("request", (request) => {
    const url = request.url();
    if (![address, address.replace("http", "ws"), `blob:${address}`, "data:"].some((own) => url.startsWith(own))) foreign.push(url);
  });
  await page.goto(`${address}/lab/tree/view.ipynb?reset`);
  const cells = page.locator(".jp-Notebook .jp-CodeCell");
  await cells.first().waitFor();
  /** Runs a cell, once the kernel has started. */
  const run = async (at) => {
    const prompt = cells.nth(at).locator(".jp-InputPrompt");
    await cells.nth(at).locator(".cm-content").click();
    for (let tries = 0; tries < 30 && !/\d|\*/.test(await prompt.innerText()); tries += 1) {
      await page.locator('.jp-NotebookPanel-toolbar [data-jp-item-name="run"]').click();
      await page.waitForTimeout(1000);
      if (!/\d|\*/.test(await prompt.innerText())) await cells.nth(at).locator(".cm-content").click();
    }
  };
  const frame = page.frameLocator('iframe[title="Statelens"]');

  await run(0);
  await frame.locator("#work .row").first().waitFor();
  assert.equal(await frame.locator("header.top").isVisible(), false, "the page has a header");
  await picture("notebook-opened");
  await frame.locator(`.row[data-key="${key}"]`).click();
  await frame.locator(".insp .vals td").first().waitFor();
  await picture("notebook-selected");
  await run(1);
  const output = cells.nth(1).locator(".jp-OutputArea-output");
  await output.first().waitFor();
  const said = (await output.allInnerTexts()).join("\n");
  assert.equal(said.trim(), `selected: ${key} (97, 32) float32`);

  // Closing the view removes the frame.
  await run(2);
  await page.locator('iframe[title="Statelens"]').waitFor({ state: "detached" });

  // Another format, by the method.
  await run(3);
  await frame.locator("#work .row").first().waitFor();
  await picture("notebook-second");
  assert.deepEqual(errors, []);
  assert.deepEqual(foreign, [], "requests to other sites");
  console.log("The page shows checkpoints in JupyterLab.");
} catch (error) {
  await picture("notebook-failed");
  console.error(await page.locator(".jp-Notebook").innerText().catch(String));
  throw error;
} finally {
  await browser.close();
  lab.removeAllListeners("exit");
  lab.kill();
  await new Promise((ended) => lab.on("exit", ended));
  rmSync(folder, { recursive: true, force: true });
}
