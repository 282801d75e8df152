// Registers the service worker (sw.js), which caches the site for offline use, and notifies the page of a newer version.
// That version takes over if the user agrees, or when all windows are closed.
const worker = navigator.serviceWorker;
// A page that the command serves needs no cache.
if (worker && location.protocol.startsWith("http") && !document.querySelector("meta[name=files]")) {
  const registration = await worker.register("sw.js").catch(() => null);
  const announce = () => {
    if (!registration?.waiting || !worker.controller) return;
    globalThis.newVersion = () => {
      worker.addEventListener("controllerchange", () => location.reload(), { once: true });
      registration.waiting.postMessage("take over");
    };
    dispatchEvent(new Event("newversion"));
  };
  announce();
  registration?.addEventListener("updatefound", () => registration.installing.addEventListener("statechange", announce));
}
