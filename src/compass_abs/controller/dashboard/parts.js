// Small pieces of page.
// Okabe and Ito's palette, told apart by people who see colours differently, in three tones.
const PALETTE = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#b8a80c", "#7f7f7f",
  "#2e8ac0", "#b37c00", "#00785a", "#a35a82", "#8cc9ef", "#f0bd55", "#4fc3a0", "#dfa3c4"];

// Jobs get colours in the order in which they are first seen, so that those side by side differ.
const colours = new Map();
export function colour(id) {
  if (!colours.has(id)) colours.set(id, PALETTE[colours.size % PALETTE.length]);
  return colours.get(id);
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export const text = (value) => document.createTextNode(value ?? "");
export const cell = (...children) => element("td", {}, ...children);

export function jobButton(job, open) {
  const button = element("button", { class: "job", type: "button", title: job.name === job.id ? job.id : `${job.id}: ${job.name}` });
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = colour(job.id);
  const name = job.name !== job.id ? element("span", { class: "muted" }, text(job.name)) : text("");
  button.append(swatch, element("span", { class: "id" }, text(job.id)), name);
  button.addEventListener("click", open);
  return button;
}

export function progress(job) {
  const words = job.total ? `${job.step} / ${job.total}` : `${job.step || "–"}`;
  if (!job.total) return text(words);
  const bar = element("progress", { max: job.total, value: job.step, "aria-label": `${job.id}: ${words} steps` });
  return element("span", { class: "progress" }, bar, text(` ${words}`));
}

export function since(then, now) {
  const seconds = Math.max(0, now - then);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

// A moment on the watch of whoever looks; with its day when that isn't today.
export function clock(seconds) {
  const moment = new Date(1000 * seconds), time = moment.toLocaleTimeString();
  return moment.toDateString() === new Date().toDateString() ? time : `${moment.toLocaleDateString()} ${time}`;
}

// Replaces only the children whose content changed, so that what a user points at or has focused stays.
export function patch(parent, items, key, make) {
  const known = new Map([...parent.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const id = key(item), content = JSON.stringify(item), old = known.get(id);
    if (old && old.dataset.content === content) return old;
    const made = make(item);
    made.dataset.key = id;
    made.dataset.content = content;
    return made;
  });
  wanted.forEach((child, position) => { if (parent.children[position] !== child) parent.insertBefore(child, parent.children[position] ?? null); });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
}
