// Everything about one job: where it runs, its log, its history.
import { api, request } from "./client.js";
import { element, text } from "./parts.js";

const panel = document.getElementById("panel"), body = document.getElementById("panel-body");
let shown = null, ask = null, instance = 0;

export async function openJob(id, confirmed) {
  if (shown !== id) instance = 0;
  shown = id;
  ask = confirmed;
  panel.hidden = false;
  // So that a job's page can be bookmarked and sent to somebody.
  window.history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  await refreshPanel();
}

// Opens the job that the page's address names.
export async function followAddress(confirmed) {
  const id = decodeURIComponent(window.location.hash.slice(1));
  if (!id || id === shown) return;
  try { await openJob(id, confirmed); } catch { closePanel(); }
}

export function closePanel() {
  shown = null;
  panel.hidden = true;
  window.history.replaceState(null, "", window.location.pathname);
}

async function logOf(job) {
  const response = await request(`/jobs/${encodeURIComponent(job)}/logs?instance=${instance}&offset=-16384`);
  return response.ok ? response.text() : "nothing printed yet";
}

function heading(words) { return element("h3", {}, text(words)); }

function history(past) {
  const total = Object.values(past.seconds).reduce((sum, value) => sum + value, 0);
  const bar = element("div", { class: "phases" });
  const words = Object.entries(past.seconds).map(([phase, value]) => {
    const part = element("i", { title: `${phase}: ${value.toFixed(2)} s` });
    part.style.width = `${total ? 100 * value / total : 0}%`;
    bar.append(part);
    return `${phase} ${value.toFixed(2)} s`;
  });
  const line = `${past.id} (${past.cause}) ${past.outcome}: ${past.sources.join(" ")} → ${past.targets.join(" ")}, ${total.toFixed(2)} s`;
  return element("div", {}, text(line), bar, element("div", { class: "muted" }, text(`${words.join(", ")} ${past.why}`)));
}

export async function refreshPanel() {
  if (!shown) return;
  const id = shown, job = await api(`/jobs/${encodeURIComponent(id)}`), log = await logOf(id);
  if (shown !== id) return;
  document.getElementById("panel-title").textContent = `${job.id} – ${job.name}`;
  const over = job.ended !== null;
  const parts = [element("p", {}, text(`${job.phase}${job.reason ? `: ${job.reason}` : ""}. ${job.instances} × ${job.gpus} GPUs, step ${job.step}${job.total ? ` of ${job.total}` : ""}, ${job.restarts} restarts, ${job.lost_steps} steps lost.`))];
  if (!over) {
    const cancel = element("button", { type: "button", id: "cancel" }, text("Cancel job"));
    cancel.addEventListener("click", () => ask(`End ${job.id} (${job.name})?`, () => api(`/jobs/${encodeURIComponent(id)}/cancel`, { method: "POST" })));
    parts.push(cancel);
  }
  if (job.runs.length) {
    parts.push(heading("Instances"));
    for (const run of job.runs) parts.push(element("div", {}, text(`${run.instance}: ${run.phase} on ${run.node}, GPU ${run.gpus.join(",") || "?"}, generation ${run.generation}, ${run.handle}`)));
  }
  if (job.history.length) parts.push(heading("Migrations"), ...job.history.map(history));
  parts.push(heading("Log"));
  if (job.instances > 1) {
    const choice = element("select", { "aria-label": "Instance" });
    for (let number = 0; number < Math.min(job.instances, 256); number += 1) choice.append(element("option", { value: number }, text(`instance ${number}`)));
    choice.value = instance;
    choice.addEventListener("change", () => { instance = Number(choice.value); refreshPanel(); });
    parts.push(choice);
  }
  const output = element("pre", { id: "log" }, text(log));
  parts.push(output, heading("Command"), element("pre", {}, text(JSON.stringify(job.spec.command))));
  body.replaceChildren(...parts);
  output.scrollTop = output.scrollHeight;
}
