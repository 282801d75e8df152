// Keeps the site for when there is no network (sw.js), and tells the page when a newer version is there. It is never
// put in place of the one that runs unless the user says so, or all windows are closed.
const worker = navigator.serviceWorker;
// The command serves the page itself: there is nothing to keep.
if (worker && location.protocol.startsWith("http") && !document.querySelector("meta[name=files]")) {
  const registration = await worker.register("sw.js").catch(() => null);
  const look = () => {
    if (!registration?.waiting || !worker.controller) return;
    globalThis.newVersion = () => {
      worker.addEventListener("controllerchange", () => location.reload(), { once: true });
      registration.waiting.postMessage("take over");
    };
    dispatchEvent(new Event("newversion"));
  };
  look();
  registration?.addEventListener("updatefound", () => registration.installing.addEventListener("statechange", look));
}
