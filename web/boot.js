// Starts the page. Trunk names the built files in this script's own tag, so that no inline script is needed.
const { js, wasm } = document.querySelector("script[data-wasm]").dataset;
const { default: init } = await import(new URL(js, document.baseURI));
await init({ module_or_path: new URL(wasm, document.baseURI) });
