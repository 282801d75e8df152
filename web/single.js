// Starts Statelens from a single HTML file, which may be on disk. `cargo xtask dist` wraps this in an async function after
// the program's script, which defines `init`. Page and worker both run it.
async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  /** Returns a bundled example or a file of a model family. */
  globalThis.embedded = async (path) => new Response(await unpacked(path)).blob();
  if (globalThis.hasSimd()) {
    const wasm = new Response(await unpacked("wasm"), { headers: { "Content-Type": "application/wasm" } });
    const script = new Blob([document.getElementById("program").textContent], { type: "text/javascript" });
    // The page hands this to the worker that it starts.
    globalThis.program = {
      module: await WebAssembly.compileStreaming(wasm),
      worker: URL.createObjectURL(script),
      // Browsers do not start module workers for a page from disk.
      options: { type: "classic" },
    };
    await init({ module_or_path: globalThis.program.module });
  }
} else {
  addEventListener("message", ({ data }) => init({ module_or_path: data.module }), { once: true });
}
