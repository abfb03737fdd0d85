// Nodes by GPUs, and the gangs on the move.
import { colour, element, patch, svg, text } from "./parts.js";

function cells(node) {
  const found = new Array(node.gpus).fill(null), rest = [];
  for (const slot of node.slots) {
    if (slot.indices.length === slot.gpus && slot.indices.every((index) => index < node.gpus && !found[index])) {
      for (const index of slot.indices) found[index] = slot;
    } else rest.push(slot);
  }
  for (const slot of rest) {
    for (let wanted = slot.gpus, index = 0; wanted && index < node.gpus; index += 1) if (!found[index]) { found[index] = slot; wanted -= 1; }
  }
  return found;
}

export function drawCluster(target, picture, open, drain) {
  target.classList.toggle("few", picture.nodes.length <= 12);
  patch(target, picture.nodes, (node) => node.name, (node) => {
    const row = element("div", { class: `node ${node.status}`, "data-node": node.name });
    const gpus = element("div", { class: "gpus", role: "img", "aria-label": `${node.name}: ${node.gpus - node.free} of ${node.gpus} GPUs used` });
    let left = null;
    for (const slot of cells(node)) {
      const other = slot && left && (slot.job !== left.job || slot.instance !== left.instance);
      const gpu = element("div", { class: (slot ? `gpu taken ${slot.state}` : "gpu") + (other ? " apart" : "") });
      left = slot;
      if (slot) {
        gpu.style.background = colour(slot.job);
        gpu.title = `${slot.job}, instance ${slot.instance}`;
        gpu.addEventListener("click", () => open(slot.job));
      }
      gpus.append(gpu);
    }
    const name = element("div", { class: "name", title: node.detail || node.name }, text(node.name));
    if (node.status !== "up") name.append(element("div", { class: "status" }, text(node.status)));
    const button = element("button", { type: "button" }, text(node.status === "up" ? "Drain" : "Undrain"));
    if (node.status === "lost") button.hidden = true;
    button.addEventListener("click", () => drain(node));
    row.append(name, gpus, button);
    return row;
  });
}

// A dashed arc from where each instance leaves to where it arrives.
export function drawMoves(target, cluster, picture) {
  const base = target.getBoundingClientRect();
  const rows = new Map([...cluster.children].map((child) => [child.dataset.node, child]));
  const middle = (name) => {
    const row = rows.get(name), box = row?.querySelector(".gpus").getBoundingClientRect();
    return box && { x: box.x + box.width / 2 - base.x, y: box.y + box.height / 2 - base.y };
  };
  const paths = [];
  for (const job of picture.jobs) {
    if (!job.migration) continue;
    job.migration.sources.forEach((source, number) => {
      const from = middle(source), to = middle(job.migration.targets[number]);
      if (!from || !to || source === job.migration.targets[number]) return;
      const bend = 40 + Math.abs(to.y - from.y) / 4;
      const path = svg("path", { d: `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x + bend} ${to.y} ${to.x} ${to.y}`, "data-job": job.id });
      path.style.stroke = colour(job.id);
      paths.push(path);
    });
  }
  target.replaceChildren(...paths);
}
