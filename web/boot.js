// Starts Statelens: the page in a window, the core in a worker. Both run the same module, which is compiled once.
async function fetched(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: ${response.status}`);
  return response;
}

async function compile(address) {
  try {
    return await WebAssembly.compileStreaming(fetched(address));
  } catch {
    // The host does not send the type application/wasm.
    return WebAssembly.compile(await (await fetched(address)).arrayBuffer());
  }
}

async function run({ script, module }) {
  const { default: init } = await import(script);
  return init({ module_or_path: module });
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  // The build names the program's files in this script's own tag, so that no inline script is needed.
  const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
  const absolute = (address) => new URL(address, document.baseURI).href;
  if (globalThis.hasSimd()) {
    try {
      // The page hands this to the worker that it starts.
      globalThis.program = {
        script: absolute(js),
        module: await compile(absolute(wasm)),
        worker: import.meta.url,
        options: { type: "module" },
      };
      await run(globalThis.program);
    } catch (error) {
      globalThis.showFailure(`Statelens could not be loaded: ${error.message}. Check the connection and whether an extension or a firewall blocks this site, then reload the page.`);
      throw error;
    }
  }
} else {
  // An error in an asynchronous task is reported like an error in a message handler.
  addEventListener("unhandledrejection", (failed) => {
    failed.preventDefault();
    setTimeout(() => {
      throw failed.reason;
    });
  });
  addEventListener("message", ({ data }) => run(data), { once: true });
}
