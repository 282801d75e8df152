// Starts the page. Trunk names the built files in this script's own tag, so that no inline script is needed.
// A file that is dropped before the page listens must not replace the page.
for (const event of ["dragover", "drop"]) {
  addEventListener(event, (dropped) => dropped.preventDefault());
}
const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
const { default: init } = await import(new URL(js, document.baseURI));
await init({ module_or_path: new URL(wasm, document.baseURI) });
