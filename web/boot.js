// Starts Statelens: the page in a window, the core in a worker. Both run the same module, which is compiled once.
async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  if (!address.endsWith(".xz")) return answer;
  // `cargo xtask build` packs it; a site that only Trunk built has it as it is.
  const { XzReadableStream } = globalThis["xz-decompress"];
  return new Response(new XzReadableStream(answer.body), { headers: { "Content-Type": "application/wasm" } });
}

async function compile(address) {
  try {
    return await WebAssembly.compileStreaming(fetched(address));
  } catch {
    // A host that does not name the type application/wasm.
    return WebAssembly.compile(await (await fetched(address)).arrayBuffer());
  }
}

async function run({ script, module }) {
  const { default: init } = await import(script);
  await init({ module_or_path: module });
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  // Trunk names the built files in this script's own tag, so that no inline script is needed.
  const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
  const absolute = (address) => new URL(address, document.baseURI).href;
  // The page hands this to each worker that it starts.
  globalThis.program = {
    script: absolute(js),
    module: await compile(absolute(wasm)),
    worker: import.meta.url,
    options: { type: "module" },
  };
  await run(globalThis.program);
} else {
  addEventListener("message", ({ data }) => run(data), { once: true });
}
