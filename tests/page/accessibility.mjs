// Accessibility checks of a screen, which run in the page. Most of them return a list of violations.

/** Records the elements that are drawn only by a background colour, for `lostBackgrounds`, while colours are not forced. */
export function recordBackgrounds() {
  const clear = (color) => color === "transparent" || /, 0\)$|\/ 0\)$/.test(color);
  const shown = (element) => {
    const { width, height } = element.getBoundingClientRect();
    return width > 0 && height > 0 && element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    if (!shown(element) || element.closest("svg")) continue;
    for (const pseudo of [null, "::before", "::after"]) {
      const style = getComputedStyle(element, pseudo);
      if (pseudo && (style.content === "none" || style.content === "normal")) continue;
      const empty = pseudo ? /^""$/.test(style.content) : !element.firstChild && !["INPUT", "CANVAS", "SELECT", "TEXTAREA"].includes(element.tagName);
      if (empty && !clear(style.backgroundColor)) found.push([element, pseudo, style.backgroundColor]);
    }
  }
  // Ignores backgrounds of the same colour as the element behind, and separator lines (`.vr`), which carry no information.
  globalThis.painted = found.filter(([element, pseudo, color]) => {
    const behind = (at) => (at ? (clear(getComputedStyle(at).backgroundColor) ? behind(at.parentElement) : getComputedStyle(at).backgroundColor) : "none");
    return color !== behind(pseudo ? element : element.parentElement) && !element.matches(".vr");
  });
}

/** Lists the recorded elements that forced colours made invisible: without a background, a border and an image. */
export function lostBackgrounds() {
  const clear = (color) => color === "transparent" || /, 0\)$|\/ 0\)$/.test(color);
  const lost = [];
  for (const [element, pseudo] of globalThis.painted) {
    if (!element.isConnected) continue;
    const style = getComputedStyle(element, pseudo);
    const behind = (at) => (at ? (clear(getComputedStyle(at).backgroundColor) ? behind(at.parentElement) : getComputedStyle(at).backgroundColor) : "canvas");
    const canvas = getComputedStyle(document.body).backgroundColor;
    const back = behind(pseudo ? element : element.parentElement);
    const seen = !clear(style.backgroundColor) && style.backgroundColor !== (back === "canvas" ? canvas : back);
    const edged = style.borderStyle !== "none" && parseFloat(style.borderTopWidth) + parseFloat(style.borderLeftWidth) > 0;
    if (!seen && !edged && style.backgroundImage === "none") lost.push(`${element.tagName}.${element.getAttribute("class")} ${pseudo ?? ""} in .${element.parentElement.className}`);
  }
  return [...new Set(lost)];
}

/** Lists selected, checked, pressed or current elements that look like one of their other peers. */
export function indistinct() {
  const states = ["aria-selected", "aria-checked", "aria-pressed", "aria-current"];
  const looks = ["borderTopColor", "borderTopWidth", "borderTopStyle", "borderBottomWidth", "borderBottomColor", "outlineStyle", "outlineWidth", "color", "fontWeight", "textDecorationLine"];
  // Resolves a transparent background to the colour behind it.
  const background = (at) => (at ? (/transparent|, 0\)$/.test(getComputedStyle(at).backgroundColor) ? background(at.parentElement) : getComputedStyle(at).backgroundColor) : "");
  const look = (element) => {
    const of = (element, pseudo) => {
      const style = getComputedStyle(element, pseudo);
      const outline = style.outlineStyle === "none" ? ["outlineWidth", "outlineColor"] : [];
      return looks.filter((name) => !outline.includes(name)).map((name) => style[name]).join(";") + (pseudo ? style.content : "");
    };
    return [background(element), of(element), of(element, "::before"), of(element, "::after")].join("|");
  };
  // The focus would change the look as well.
  document.activeElement?.blur();
  const found = [];
  for (const state of states) {
    for (const element of document.querySelectorAll(`[${state}]:not([${state}="false"])`)) {
      if (!element.checkVisibility({ visibilityProperty: true }) || element.closest("svg")) continue;
      const role = element.getAttribute("role") ?? element.tagName;
      const group = element.parentElement.closest("[role=radiogroup], [role=grid], [role=tree], [role=listbox], [role=tablist], [role=group], table, .scroller, .tabs, section") ?? document.body;
      const peers = [...group.querySelectorAll("*")].filter(
        (peer) => (peer.getAttribute("role") ?? peer.tagName) === role && peer !== element && (!peer.hasAttribute(state) || peer.getAttribute(state) === "false") && peer.checkVisibility({ visibilityProperty: true }),
      );
      const within = (element) => look(element) + [...element.children].map(look).join("/");
      if (peers.some((peer) => within(element) === within(peer))) found.push(`${state} of ${role}.${element.className} “${element.textContent.slice(0, 30)}”`);
    }
  }
  return [...new Set(found)];
}

/**
 * Describes the element with the focus: its name, whether it shows the focus, whether it is inside the window, and whether
 * it had the focus before.
 */
export function focused() {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const outlined = (at) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(at);
    return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  };
  const around = [element, element.parentElement, element.parentElement?.parentElement].filter(Boolean);
  const seen = around.some(outlined) || [...element.querySelectorAll(".sel")].some(outlined) || element.matches(".sheet, .dlg");
  const all = (globalThis.stops ??= []);
  const before = all.includes(element);
  all.push(element);
  const { left, right, top, bottom, width, height } = element.getBoundingClientRect();
  const inside = right > 0 && bottom > 0 && left < innerWidth && top < innerHeight && width > 0 && height > 0;
  const name = `${element.tagName.toLowerCase()}#${element.id}.${element.getAttribute("class")} “${(element.getAttribute("aria-label") ?? element.textContent).trim().slice(0, 30)}”`;
  return { name, seen, inside, before };
}

/** Lists elements outside the window that no container scrolls or clips, and reports a document that scrolls sideways. */
export function outside() {
  const found = [];
  const { scrollWidth, clientWidth } = document.documentElement;
  if (Math.max(scrollWidth, document.body.scrollWidth) > clientWidth) found.push(`the document is ${Math.max(scrollWidth, document.body.scrollWidth)} px wide in ${clientWidth}`);
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility({ visibilityProperty: true }) || element.closest("svg") !== (element.tagName === "svg" ? element : null) || element.closest(".vh, .unseen")) continue;
    const { left, right, width, height } = element.getBoundingClientRect();
    if (width < 1 || height < 1 || (right <= innerWidth + 1 && left >= -1)) continue;
    let at = element.parentElement;
    // A container that scrolls makes them reachable; one that clips shows an ellipsis.
    while (at && !/auto|scroll|hidden|clip/.test(getComputedStyle(at).overflowX)) at = at.parentElement;
    if (!at || at === document.body) found.push(`${element.tagName}.${element.getAttribute("class")} lies from ${Math.round(left)} to ${Math.round(right)}`);
  }
  return [...new Set(found)].slice(0, 6);
}

/** Lists words that are broken although they fit into their column. */
export function brokenWords() {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const [text, element] = [walker.currentNode, walker.currentNode.parentElement];
    if (!/\p{L}{3}/u.test(text.data) || !element.checkVisibility({ visibilityProperty: true }) || element.closest("svg, .vh, .unseen, textarea")) continue;
    range.selectNodeContents(text);
    if (range.getClientRects().length < 2) continue;
    let block = element;
    while (/inline|contents/.test(getComputedStyle(block).display)) block = block.parentElement;
    const { paddingLeft, paddingRight } = getComputedStyle(block);
    const room = block.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    for (const { index, 0: word } of text.data.matchAll(/\p{L}{3,}/gu)) {
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
      const broken = new Set(boxes.map(({ top }) => Math.round(top))).size > 1;
      if (broken && boxes.reduce((sum, { width }) => sum + width, 0) < room - 1) found.push(`“${word}” is broken in ${block.tagName}.${block.className} “${block.textContent.slice(0, 60)}”`);
    }
  }
  return [...new Set(found)].slice(0, 6);
}

/** Lists scrollable areas that are smaller than 120 × 96 pixels. */
export function tooSmall() {
  const found = [];
  for (const area of document.querySelectorAll("[role=grid] .scroller, .map, .tree .lines, .insp, .sheetbody, [role=dialog] .body")) {
    if (!area.checkVisibility({ visibilityProperty: true }) || area.closest(".wheremap, [aria-hidden=true]") || area.matches("#lens")) continue;
    const { width, height } = area.getBoundingClientRect();
    if (width < 120 || height < 96) found.push(`${area.tagName}.${area.className} has ${Math.round(width)} × ${Math.round(height)} px`);
  }
  return found;
}

/** Reports rows in which names and numbers are too far apart, because they are wider than 2,000 pixels. */
export function stretched() {
  return [...document.querySelectorAll("[role=grid] .row")].filter((row) => row.getBoundingClientRect().width > 2000).slice(0, 1).map((row) => `a row of ${Math.round(row.getBoundingClientRect().width)} px`);
}

/** Lists controls that are cut off, or covered by another element. */
export function unreachable() {
  const found = [];
  const dialogs = document.querySelectorAll('[role="dialog"]');
  const top = dialogs[dialogs.length - 1] ?? document.body;
  const controls = top.querySelectorAll('button, input, select, textarea, a[href], summary, [role="radio"], [role="slider"], [role="tab"], [role="switch"], [role="checkbox"]');
  for (const control of controls) {
    if (control.disabled || !control.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || control.closest(".vh, .unseen, [inert], [aria-hidden=true]")) continue;
    const name = `${control.tagName.toLowerCase()}#${control.id}.${control.className} “${(control.getAttribute("aria-label") ?? control.textContent).trim().slice(0, 30)}”`;
    control.scrollIntoView({ block: "nearest", inline: "nearest" });
    const box = control.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) continue;
    let [left, right, up, down] = [Math.max(box.left, 0), Math.min(box.right, innerWidth), Math.max(box.top, 0), Math.min(box.bottom, innerHeight)];
    let dots = false;
    // The body clips at the edges of the window, which are the initial values.
    for (let at = control.parentElement; at && at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at);
      const edge = at.getBoundingClientRect();
      if (style.overflowX !== "visible") [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
      if (style.overflowY !== "visible") [up, down] = [Math.max(up, edge.top), Math.min(down, edge.bottom)];
      dots ||= style.textOverflow === "ellipsis";
      if (style.position === "fixed") break;
    }
    const wide = right - left;
    const high = down - up;
    // With an ellipsis 16 pixels are enough; otherwise the control must be visible up to the width of the window.
    const least = dots ? Math.min(box.width, 16) : Math.min(box.width, innerWidth - 40) - 3;
    if (wide < least || high < Math.min(box.height, 40) - 3) {
      found.push(`${name} is cut: ${Math.round(wide)} × ${Math.round(high)} of ${Math.round(box.width)} × ${Math.round(box.height)}`);
      continue;
    }
    const hit = document.elementFromPoint((left + right) / 2, (up + down) / 2);
    const same = hit && (control.contains(hit) || hit.contains(control) || hit.closest("label")?.contains(control) || control.closest("label")?.contains(hit));
    if (!same) found.push(`${name} lies under ${hit?.tagName}.${hit?.getAttribute("class")}`);
  }
  return found;
}

/** Lists pairs of overlapping texts. */
export function overlapping() {
  const dialogs = document.querySelectorAll('[role="dialog"]');
  const top = dialogs[dialogs.length - 1] ?? document.body;
  const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  const texts = [];
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || element.closest(".vh, .unseen, title, desc, option, .mirror, .lensart")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      let [left, right, up, down] = [Math.max(0, box.left), Math.min(innerWidth, box.right), Math.max(0, box.top), Math.min(innerHeight, box.bottom)];
      for (let at = element; at && at !== document.body; at = at.parentElement) {
        const style = getComputedStyle(at);
        const edge = at.getBoundingClientRect();
        if (style.overflowX !== "visible" && !at.closest("svg")) [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
        if (style.overflowY !== "visible" && !at.closest("svg")) [up, down] = [Math.max(up, edge.top), Math.min(down, edge.bottom)];
        if (style.position === "fixed") break;
      }
      // Glyphs do not fill their line box.
      const lead = (down - up) * 0.18;
      if (right - left > 2 && down - up > 4) texts.push({ node, element, left, right, up: up + lead, down: down - lead });
    }
  }
  const opaque = (element) => !/transparent|, 0\)$|\/ 0\)$/.test(getComputedStyle(element).backgroundColor);
  const found = [];
  texts.forEach((one, at) => {
    for (const two of texts.slice(at + 1)) {
      if (one.node === two.node) continue;
      const [left, right] = [Math.max(one.left, two.left), Math.min(one.right, two.right)];
      const [up, down] = [Math.max(one.up, two.up), Math.min(one.down, two.down)];
      if (right - left < 3 || down - up < 3) continue;
      // Texts may overlap if one has an opaque background, for example a sticky header over a list.
      const stack = document.elementsFromPoint((left + right) / 2, (up + down) / 2);
      const [high, low] = [one, two].map(({ element }) => stack.findIndex((it) => element.contains(it) || it === element)).sort((a, b) => a - b);
      const between = high >= 0 && low >= 0 ? stack.slice(high, low) : [];
      if (between.some(opaque)) continue;
      found.push(`“${one.node.data.trim().slice(0, 24)}” and “${two.node.data.trim().slice(0, 24)}” in ${one.element.tagName}.${one.element.getAttribute("class")} at ${Math.round(left)}, ${Math.round(up)}`);
    }
  });
  return [...new Set(found)].slice(0, 6);
}

/** Lists pictures without numbers in their text alternative. */
export function unlabelled() {
  const found = [];
  const numbers = (text) => /\d/.test(text ?? "");
  for (const picture of document.querySelectorAll("canvas, svg")) {
    if (picture.parentElement.closest("svg") || !picture.checkVisibility({ visibilityProperty: true })) continue;
    const { width, height } = picture.getBoundingClientRect();
    // Ignores the ornament of the start screen, and small marks, which have text next to them.
    if (picture.matches(".lensart[aria-hidden=true]")) continue;
    if (width * height < 26 * 26 || width < 12 || height < 8) continue;
    const named = picture.closest('[role="img"], [role="slider"], [role="group"][aria-label], [role="listbox"][aria-label], button[aria-label]');
    const text = named && [named.getAttribute("aria-label"), named.getAttribute("aria-valuetext")].join(" ");
    const mapLabel = picture.closest(".overview")?.querySelector(".map[aria-label]")?.getAttribute("aria-label");
    if (!numbers(text) && !numbers(mapLabel)) found.push(`${picture.tagName}.${picture.getAttribute("class")} in .${picture.parentElement.className}: ${text ?? "no text"}`);
  }
  return [...new Set(found)];
}

/** Lists animations, transitions and smooth scrolling that take longer than a millisecond. */
export function moving() {
  const found = document.getAnimations().filter((one) => Number(one.effect?.getComputedTiming().activeDuration) > 1).map((one) => `${one.constructor.name} of ${one.effect.target?.className}`);
  const most = (list) => Math.max(...list.split(",").map((time) => parseFloat(time) * (time.trim().endsWith("ms") ? 1 : 1000)));
  for (const element of document.querySelectorAll("body *")) {
    for (const pseudo of [null, "::before", "::after"]) {
      const style = getComputedStyle(element, pseudo);
      const time = style.animationName === "none" ? 0 : most(style.animationDuration);
      if (Math.max(time, most(style.transitionDuration)) > 1 || style.scrollBehavior === "smooth") found.push(`${element.tagName}.${element.getAttribute("class")}${pseudo ?? ""}`);
    }
  }
  return [...new Set(found)].slice(0, 8);
}

/** Lists right-to-left texts that can reorder the text around them: they are not isolated, or contain more than a key. */
export function unisolated(keys) {
  const rightToLeft = /[\u0590-\u08ff\u202a-\u202e\u2066\u2067]/;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node; (node = walker.nextNode()); ) {
    const text = node.data.trim();
    // Code is copied unchanged, so it is not isolated.
    if (!rightToLeft.test(text) || !node.parentElement.checkVisibility() || node.parentElement.closest("svg, option, title, .unseen, .vh, pre, .path")) continue;
    let at = node.parentElement;
    const isolates = (at) => /isolate|plaintext/.test(getComputedStyle(at).unicodeBidi);
    while (getComputedStyle(at).display === "inline" && !isolates(at)) at = at.parentElement;
    const isolated = /^[^\u2068]*\u2068[^\u2069]*\u2069/.test(text);
    const whole = keys.some((key) => key.includes(text));
    // A key alone in its block reorders nothing but itself.
    if (!isolated && !(whole && (isolates(at) || at.textContent.trim() === text))) found.push(`${node.parentElement.tagName}.${node.parentElement.className}: ${text.slice(0, 60)}`);
  }
  return [...new Set(found)];
}
