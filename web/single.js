// Starts Statelens where all of it is in one file, which may lie on a disk: `cargo xtask dist` puts this into an async
// function behind the program's own script, whose start is `init`. Page and worker both run it.
async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
}

if (globalThis.document) {
  // A file that is dropped before the page listens must not replace the page.
  for (const event of ["dragover", "drop"]) {
    addEventListener(event, (dropped) => dropped.preventDefault());
  }
  /** The bundled examples, and the files of model families. */
  globalThis.embedded = async (path) => new Response(await unpacked(path)).blob();
  if (globalThis.hasSimd()) {
    const wasm = new Response(await unpacked("wasm"), { headers: { "Content-Type": "application/wasm" } });
    const script = new Blob([document.getElementById("program").textContent], { type: "text/javascript" });
    // The page hands this to the worker that it starts.
    globalThis.program = {
      module: await WebAssembly.compileStreaming(wasm),
      worker: URL.createObjectURL(script),
      // For a page from disk, browsers start no worker that is a module.
      options: { type: "classic" },
    };
    await init({ module_or_path: globalThis.program.module });
  }
} else {
  addEventListener("message", ({ data }) => init({ module_or_path: data.module }), { once: true });
}
