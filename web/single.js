// Starts Statelens from a single HTML file, which may be on disk. `cargo xtask dist` wraps this in an async function after
// the program's script, which defines `init`. Page and worker both run it.
async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
}

async function compiled(id) {
  const wasm = new Response(await unpacked(id), { headers: { "Content-Type": "application/wasm" } });
  return WebAssembly.compileStreaming(wasm);
}

async function run({ module, rest }) {
  globalThis.loadRest = (main) => new WebAssembly.Instance(rest, { main });
  await init({ module_or_path: module });
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  /** Returns a bundled example or a file of a model family. */
  globalThis.embedded = async (path) => new Response(await unpacked(path)).blob();
  if (globalThis.hasSimd()) {
    const script = new Blob([document.getElementById("program").textContent], { type: "text/javascript" });
    // The page hands this to the worker that it starts.
    globalThis.program = {
      module: await compiled("wasm"),
      // Only the small page is split.
      rest: document.getElementById("rest") && (await compiled("rest")),
      worker: URL.createObjectURL(script),
      source: script,
      // Browsers do not start module workers for a page from disk.
      options: { type: "classic" },
    };
    await run(globalThis.program);
  }
} else {
  const begin = ({ data }) => {
    // The worker hands this to the assistants that it starts. A page from disk has no origin, so an address that it made
    // is of no use here.
    globalThis.program = { ...data, worker: URL.createObjectURL(data.source) };
    return run(data);
  };
  addEventListener("message", begin, { once: true });
}
