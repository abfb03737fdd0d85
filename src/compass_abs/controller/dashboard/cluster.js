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
  target.classList.toggle("many", picture.nodes.length > 120);
  patch(target, picture.nodes, (node) => node.name, (node) => {
    const row = element("div", { class: `node ${node.status}`, "data-node": node.name });
    const gpus = element("div", { class: "gpus", role: "img", "aria-label": `${node.name}: ${node.slots.reduce((sum, slot) => sum + slot.gpus, 0)} of ${node.gpus} GPUs used` });
    let left = null;
    for (const slot of cells(node)) {
      const other = slot && left && (slot.job !== left.job || slot.instance !== left.instance);
      const gpu = element("div", { class: (slot ? `gpu taken ${slot.state}` : "gpu") + (other ? " apart" : "") });
      left = slot;
      if (slot) {
        gpu.style.background = colour(slot.job);
        gpu.title = `${slot.job}, instance ${slot.instance}`;
        gpu.dataset.instance = `${slot.job} ${slot.instance}`;
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

// An arrow from where each instance leaves to where it arrives.
export function drawMoves(target, cluster, picture) {
  const base = target.getBoundingClientRect();
  const rows = new Map([...cluster.children].map((child) => [child.dataset.node, child]));
  // The middle of the instance's own GPUs on a node; of all of them until it has some there.
  const middle = (name, instance) => {
    const gpus = [...(rows.get(name)?.querySelectorAll(".gpu") ?? [])];
    const own = gpus.filter((gpu) => gpu.dataset.instance === instance);
    const boxes = (own.length ? own : gpus).map((gpu) => gpu.getBoundingClientRect());
    if (!boxes.length) return null;
    const left = boxes[0].left, right = boxes[boxes.length - 1].right, { top, bottom } = boxes[0];
    return { x: (left + right) / 2 - base.x, y: (top + bottom) / 2 - base.y };
  };
  const paths = [];
  for (const job of picture.jobs) {
    if (!job.migration) continue;
    job.migration.sources.forEach((source, number) => {
      if (source === job.migration.targets[number]) return;
      const instance = `${job.id} ${number}`;
      const from = middle(source, instance), to = middle(job.migration.targets[number], instance);
      if (!from || !to) return;
      const bend = 40 + Math.abs(to.y - from.y) / 4;
      const way = `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x + bend} ${to.y} ${to.x} ${to.y}`;
      const tip = `M${to.x} ${to.y}l9 -5v10Z`;
      // Beneath, in the colour of the card: an arrow crosses cells of any colour, its own job's among them.
      paths.push(svg("path", { class: "halo", d: way }), svg("path", { class: "way", d: way, "data-job": job.id }), svg("path", { class: "tip", d: tip }));
    });
  }
  target.replaceChildren(...paths);
}
