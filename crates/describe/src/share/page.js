"use strict";
(async () => {
const KINDS = "tensor ndarray sparse int float bool str none complex bytes object dict list tuple set link".split(" ");
const place = document.getElementById("data"), page = document.getElementById("page");
const make = (tag, name, ...below) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...below);
  return node;
};
const grouped = (n) => n.toLocaleString("en-US");
const scaled = (n, units) => {
  let at = 0;
  while (n >= 999.5 && at < units.length - 1) { n /= 1000; at++; }
  return (at ? n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0) : n) + " " + units[at];
};
const size = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB", "PB", "EB"]);
const hue = (d) => d === "bfloat16" ? "bf16" : d === "float16" ? "f16" : d === "float32" ? "f32" : d === "bool" ? "bool"
  : /^(float64|b?complex)/.test(d) ? "f64" : /^(float|q)/i.test(d) ? "fp8" : /^(u?int|bits)/.test(d) ? "int" : "val";
const color = (node, d) => { node.style.setProperty("--c", `var(--${hue(d)})`); return node; };

const packed = Uint8Array.from(atob(place.textContent.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
const view = new DataView(new ArrayBuffer(4)), utf8 = new TextDecoder();
let at = 0;
const number = () => {
  for (let n = 0, unit = 1; ; unit *= 128) {
    const byte = bytes[at++];
    n += (byte & 127) * unit;
    if (byte < 128) return n;
  }
};
const signed = () => { const n = number(); return n % 2 ? -(n + 1) / 2 : n / 2; };
const raw = () => { const length = number(); return bytes.subarray(at, at += length); };
const text = () => utf8.decode(raw());
const array = (one) => Array.from({ length: number() }, one);

const terminated = () => bytes.subarray(at, (at = bytes.indexOf(254, at) + 1) - 1);
const template = () => {
  const pieces = [];
  let from = 0;
  const all = terminated();
  all.forEach((byte, to) => { if (byte === 255) { pieces.push(utf8.decode(all.subarray(from, to))); from = to + 1; } });
  pieces.push(utf8.decode(all.subarray(from)));
  return pieces;
};
const [name] = [text(), text(), text(), text(), text()];
number();
number();
const patterns = array(() => {
  const head = bytes[at++], kind = KINDS[head & 15], flags = head >> 4;
  const p = { key: template(), kind, dtype: "", shape: null, params: 0, bytes: 0, value: [""], link: null };
  if ((head & 15) < 3) {
    p.dtype = utf8.decode(terminated());
    p.shape = array(number);
    p.params = p.shape.reduce((a, b) => a * b, 1);
    p.bytes = p.params * Math.max(1, (/\d+/.exec(p.dtype) || [8])[0] / 8);
  }
  if (flags & 1) { p.params = number(); p.bytes = number(); }
  if (flags & 2) p.value = template();
  if (flags & 4) p.link = template();
  p.arity = [p.key, p.value, p.link || [""]].reduce((sum, pieces) => sum + pieces.length - 1, 0);
  return p;
});
const leaves = array(() => ({ pattern: patterns[number()], numbers: [] }));
for (let column = 0; ; column++) {
  const open = leaves.filter((leaf) => leaf.pattern.arity > column);
  if (!open.length) break;
  let before = 0;
  for (const leaf of open) leaf.numbers.push(before += signed());
}
const findings = array(() => {
  const grade = ["note", "warning", "danger", "damage", "unknown code"][bytes[at++]];
  const [title, detail, where, advice] = [text(), text(), text(), text()];
  return { grade, title, detail, where, advice, call: array(text) };
});

const row = (p, values) => {
  let next = 0;
  const fill = (pieces) => pieces.reduce((out, piece, i) => out + (i ? values[next++] : "") + piece, "");
  const key = fill(p.key), value = fill(p.value);
  return { key, value, link: p.link && fill(p.link), dtype: p.dtype || p.kind, tensor: p.shape !== null, times: 1,
    shape: p.shape ? `[${p.shape.join(", ")}]` : "", params: p.params, bytes: p.bytes };
};
const rows = leaves.map((leaf) => row(leaf.pattern, leaf.numbers));
const measured = number();
const column = (one) => Array.from({ length: measured }, one);
let index = 0;
const known = column(() => rows[index += number()]);
const counts = column(signed).map((more, i) => more + known[i].params);
const [nans, infs, zeros] = [column(number), column(number), column(number)];
const planes = bytes[at++];
const float = (of, i) => {
  for (let plane = 0; plane < 4; plane++) view.setUint8(plane, plane < planes ? bytes[at + (plane * 4 + of) * measured + i] : 0);
  return view.getFloat32(0);
};
known.forEach((r, i) => {
  const [min, max, mean, std] = [0, 1, 2, 3].map((of) => float(of, i));
  r.stats = { min, max, mean, std, zeros: zeros[i], nan: nans[i], inf: infs[i], count: counts[i] };
});
at += planes * 4 * measured;
const about = array(() => [text(), text()]);
// Combines the statistics of several tensors, with the pooled standard deviation.
const joint = (all) => {
  if (!all.every((s) => s) || !all.length) return undefined;
  const sum = (of) => all.reduce((sum, s) => sum + of(s), 0);
  const count = sum((s) => s.count), mean = sum((s) => s.mean * s.count) / count;
  const std = Math.sqrt(Math.max(0, sum((s) => (s.std ** 2 + s.mean ** 2) * s.count) / count - mean ** 2));
  return { min: Math.min(...all.map((s) => s.min)), max: Math.max(...all.map((s) => s.max)), mean, std, count,
    zeros: sum((s) => s.zeros), nan: sum((s) => s.nan), inf: sum((s) => s.inf) };
};
// Repeated layers are one row.
const folded = array(() => {
  let from = 0;
  const members = array(() => rows[from += signed()]), [first] = members, times = members.length;
  if (times === 1) return first;
  const [key, value, link] = [text(), text(), text()];
  return { ...first, stats: joint(members.map((r) => r.stats)), key, value, link: link || null, times, params: number(), bytes: number(),
    shape: number() ? first.shape : "shapes differ" };
});

const model = array(() => [text(), text(), text()]);

const tensors = rows.filter((r) => r.tensor && !r.link);
const total = (of) => of.reduce((sum, r) => [sum[0] + r.params, sum[1] + r.bytes], [0, 0]);
const [, weight] = total(tensors);
const fact = (label, value) => make("div", "", make("span", "dim", label), make("b", "", value));
const head = make("header", "", make("h1", "", name));
const facts = make("div", "facts");
for (const [label, value] of about) {
  const one = fact(label, value);
  if (label === "grade") {
    one.className = { whole: "", checked: "", "not finite": "warning", incomplete: "warning" }[value] ?? "danger";
    one.lastChild.className = one.className && "g";
  }
  facts.append(one);
}
head.append(facts);

const tape = make("div", "tape"), legend = make("div", "key m");
let run = null;
for (const r of tensors) {
  if (run && run.dtype === r.dtype) run.bytes += r.bytes;
  else { run = { dtype: r.dtype, bytes: r.bytes, node: color(make("i"), r.dtype) }; run.node.style.background = "var(--c)"; run.all = tape.childElementCount < 400 && tape.append(run.node); }
  run.node.style.flex = `${run.bytes / (weight || 1)} 1 0`;
  run.node.title = `${run.dtype} ${size(run.bytes)}`;
}
for (const dtype of new Set(tensors.map((r) => r.dtype))) {
  const of = tensors.filter((r) => r.dtype === dtype), [count, bytes] = total(of);
  legend.append(color(make("span", "", `${dtype}  ${grouped(of.length)} tensor${of.length == 1 ? "" : "s"}, ${scaled(count, ["", "k", "M", "B", "T"]).trim()} param${count == 1 ? "" : "s"}, ${size(bytes)}`), dtype));
}
if (weight) head.append(tape, legend);
page.replaceChildren(head);

if (model.length) {
  const list = make("div", "facts");
  for (const [label, value, source] of model) {
    const one = fact(label, value);
    one.append(make("span", "dim", source));
    list.append(one);
  }
  const section = make("section", "", make("h2", "", "Model"), list);
  section.id = "model";
  page.append(section);
}
if (findings.length) {
  const list = make("section", "", make("h2", "", "Findings"));
  const grades = ["danger", "unknown code", "damage", "warning", "note"];
  const rank = (f) => grades.indexOf(f.grade);
  for (const f of findings.sort((a, b) => rank(a) - rank(b))) {
    const one = make("div", "finding " + (rank(f) < 3 ? "danger" : f.grade), make("span", "g", f.grade + " "), make("b", "", f.title));
    if (f.call.length) one.append(make("div", "m", `${f.call[0]}.${f.call[1]}(${f.call[2]})  never run`));
    for (const more of [f.detail, f.where, f.advice]) if (more) one.append(make("div", "dim", more));
    list.append(one);
  }
  page.append(list);
}

const search = make("input");
search.type = "search";
search.placeholder = "filter keys, dtypes, shapes";
search.setAttribute("aria-label", search.placeholder);
const fold = make("input");
fold.type = "checkbox";
fold.checked = folded.length < rows.length;
const hits = make("span", "dim");
const bar = make("div", "bar", search);
if (folded.length < rows.length) bar.append(make("label", "", fold, "fold layers"));
bar.append(hits);

const short = (n) => {
  if (!Number.isFinite(n)) return "";
  const tiny = n !== 0 && Math.abs(n) < 1e-4;
  return (tiny ? n.toExponential(2) : String(Number(n.toPrecision(4)))).replaceAll("-", "\u2212");
};
const columns = [["key", (r) => r.key], ["kind", (r) => r.dtype], ["shape", (r) => r.shape], ["params", (r) => r.params, 1],
  ["bytes", (r) => r.bytes, 1]];
// Empty columns are left out.
const counted = (one) => !["nan", "inf"].includes(one) || known.some((r) => r.stats[one]);
for (const one of measured ? ["min", "max", "mean", "std", "zeros", "nan", "inf"].filter(counted) : []) columns.push([one, (r) => r.stats ? r.stats[one] : NaN, 2]);
if (rows.some((r) => r.link || r.value)) columns.push(["value", (r) => r.link && (r.tensor || !r.value) ? "= " + r.link : r.value]);
const body = make("tbody"), heads = make("tr");
let sort = null, most = 500;
const collator = new Intl.Collator("en", { numeric: true });
const draw = () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let list = (fold.checked ? folded : rows).filter((r) => {
    const all = `${r.key} ${r.dtype} ${r.shape}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
  if (sort) {
    const [, value, numeric] = columns[sort.column];
    const worth = (n) => Number.isNaN(n) ? -Infinity : n;
    list = [...list].sort((a, b) => sort.way * (numeric ? (worth(value(a)) - worth(value(b)) || 0) : collator.compare(value(a), value(b))));
  }
  hits.textContent = words.length ? `${grouped(list.length)} found` : "";
  body.replaceChildren(...list.slice(0, most).map((r) => {
    const cells = columns.map(([label, value, numeric]) => {
      const v = value(r);
      const cell = make("td", numeric ? "n" : label === "value" ? "v" : "");
      if (numeric === 2) cell.append(label.length > 4 || label === "nan" || label === "inf" ? (r.stats ? grouped(v) : "") : short(v));
      else if (numeric) cell.append(r.tensor ? grouped(v) : "");
      else cell.append(label === "kind" ? color(make("span", r.tensor ? "d" : "", v), r.tensor ? v : "") : v);
      if (label === "value") cell.title = v;
      if (label === "key" && r.times > 1) cell.append(make("span", "x", "\u00d7" + grouped(r.times)));
      return cell;
    });
    return make("tr", "", ...cells);
  }));
  more.hidden = list.length <= most;
  more.textContent = `show more of ${grouped(list.length)}`;
  [...heads.children].forEach((cell, i) => cell.setAttribute("aria-sort", sort && sort.column === i ? (sort.way > 0 ? "ascending" : "descending") : "none"));
};
columns.forEach(([label, , numeric], column) => {
  const button = make("button", "", label);
  button.onclick = () => {
    const first = numeric ? -1 : 1;
    sort = !sort || sort.column !== column ? { column, way: first } : sort.way === first ? { column, way: -first } : null;
    draw();
  };
  heads.append(make("th", numeric ? "n" : "", button));
});
const more = make("button", "more");
more.onclick = () => { most += 2000; draw(); };
search.oninput = fold.onchange = draw;
addEventListener("beforeprint", () => { most = Infinity; draw(); });

const tree = (list, depth, prefix) => {
  const groups = new Map();
  for (const r of list) {
    const part = r.key.split(".")[depth];
    if (part === undefined) continue;
    groups.has(part) ? groups.get(part).push(r) : groups.set(part, [r]);
  }
  const out = make("ul");
  for (const [part, of] of [...groups].slice(0, 1000)) {
    const path = prefix + part, deeper = of.some((r) => r.key.split(".").length > depth + 1);
    const twist = make("span", "t", deeper ? "\u25b8" : ""), label = make("button", "", part);
    const bytes = of.reduce((sum, r) => sum + (r.tensor && !r.link ? r.bytes : 0), 0);
    const item = make("li", "", make("div", "row", twist, label, make("span", "dim m", bytes ? size(bytes) : "")));
    let below = null;
    const toggle = () => {
      if (!deeper) return;
      if (below) { below.remove(); below = null; } else item.append(below = tree(of, depth + 1, path + "."));
      twist.textContent = below ? "\u25be" : "\u25b8";
      label.setAttribute("aria-expanded", String(below !== null));
    };
    if (deeper) label.setAttribute("aria-expanded", "false");
    twist.onclick = toggle;
    label.title = path;
    label.onclick = () => { toggle(); search.value = path; draw(); };
    out.append(item);
    if (groups.size === 1 && depth < 6) toggle();
  }
  return out;
};
const nav = make("nav", "", make("h2", "", "State"), tree(folded, 0, ""));
nav.setAttribute("aria-label", "Tree");
const table = make("table", "", make("thead", "", heads), body);
page.append(make("div", "cols", nav, make("div", "", bar, make("div", "scroll", table), more)),
  make("footer", "", "A summary made by Statelens. It contains no weights; the sender has the file."));
draw();
})().catch((error) => {
  document.getElementById("page").textContent = "This summary can\u2019t be shown: " + error.message
    + ". It needs a browser of 2023 or later, and the whole file.";
});
