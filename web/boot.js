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

/**
 * Returns the function that loads the rest of the program, which imports from the `main` part. The program calls it in the
 * middle of a computation, so it waits for the file.
 */
function restAt(address) {
  return (main) => {
    const request = new XMLHttpRequest();
    request.open("GET", address, false);
    // A window that waits gets text only: one letter for each byte.
    request.overrideMimeType("text/plain; charset=x-user-defined");
    try {
      request.send();
    } catch {
      // The status is 0.
    }
    if (request.status !== 200) throw new Error("A part of Statelens could not be loaded.");
    const text = request.responseText;
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = text.charCodeAt(at);
    return new WebAssembly.Instance(new WebAssembly.Module(bytes), { main });
  };
}

async function run({ script, module, rest }) {
  const { default: init } = await import(script);
  globalThis.loadRest = restAt(rest);
  return init({ module_or_path: module });
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  // The build names the program's files in this script's own tag, so that no inline script is needed.
  const { js, wasm, rest } = document.querySelector("script[data-wasm]").dataset;
  const absolute = (address) => new URL(address, document.baseURI).href;
  if (globalThis.hasSimd()) {
    try {
      // The page hands this to the worker that it starts.
      globalThis.program = {
        script: absolute(js),
        module: await compile(absolute(wasm)),
        // Only the small page has one.
        rest: rest && absolute(rest),
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
  const begin = ({ data }) => {
    // The worker hands this to the assistants that it starts.
    globalThis.program = data;
    return run(data);
  };
  addEventListener("message", begin, { once: true });
}
