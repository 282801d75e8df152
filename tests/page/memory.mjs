// Memory of the browser and its child processes, read from /proc on Linux.

import { readFileSync, readdirSync } from "node:fs";

const MARK = `--statelens-memory-${process.pid}`;

/** Returns a switch for `launch` that marks this browser's processes. */
export function marked() {
  return MARK;
}

/** Returns the anonymous and shared memory of the marked browser in MB, or 0 without /proc. */
export function memory() {
  if (process.platform !== "linux") return 0;
  const parents = new Map();
  const roots = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      parents.set(pid, { parent: /PPid:\s+(\d+)/.exec(status)[1], status });
      if (readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(MARK)) roots.push(pid);
    } catch {
      // The process ended meanwhile.
    }
  }
  const isMarked = (pid) => {
    for (let at = pid; parents.has(at); at = parents.get(at).parent) if (roots.includes(at)) return true;
    return false;
  };
  let kilobytes = 0;
  for (const [pid, { status }] of parents) {
    if (!isMarked(pid)) continue;
    for (const name of ["RssAnon", "RssShmem"]) kilobytes += Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0);
  }
  return kilobytes / 1024;
}
