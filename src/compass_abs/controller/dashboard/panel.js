// Everything about one job: where it runs, its log, its history.
import { api, request } from "./client.js";
import { clock, element, patch, text } from "./parts.js";

const panel = document.getElementById("panel"), body = document.getElementById("panel-body");
const MOST_RUNS = 256, LOG_BYTES = 65536;
let shown = null, ask = null;
// What is on the page of the job that is shown: kept while it is, so that what a user reads or has focused stays.
let page = null;

export async function openJob(id, confirmed) {
  if (shown !== id) page = null;
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
  shown = page = null;
  panel.hidden = true;
  window.history.replaceState(null, "", window.location.pathname);
}

function section(words, ...children) {
  const made = element("div", {}, element("h3", {}, text(words)), ...children);
  made.hidden = true;
  return made;
}

function choice(label) {
  const made = element("select", { "aria-label": label });
  made.addEventListener("change", () => { page.log.textContent = ""; refreshPanel(); });
  made.hidden = true;
  return made;
}

function build(job) {
  const made = { status: element("p"), runs: element("div"), moves: element("div"), events: element("ol", { class: "events" }) };
  made.cancel = element("button", { type: "button", id: "cancel" }, text("Cancel job"));
  made.cancel.addEventListener("click", () => ask(`End ${job.id} (${job.name})?`,
    () => api(`/jobs/${encodeURIComponent(job.id)}/cancel`, { method: "POST" })));
  made.instance = choice("Instance");
  made.generation = choice("Start");
  made.log = element("pre", { id: "log", tabindex: "0", "aria-label": "Log" });
  made.sections = [
    [section("Instances", made.runs), (job) => job.runs.length],
    [section("Log", made.instance, made.generation, made.log), () => true],
    [section("Migrations", made.moves), (job) => job.history.length],
    [section("History", made.events), () => true],
    [section("Command", element("pre", {}, text(JSON.stringify(job.spec.command)))), () => true],
  ];
  document.getElementById("panel-title").textContent = `${job.id} – ${job.name}`;
  body.replaceChildren(made.status, made.cancel, ...made.sections.map(([part]) => part));
  return made;
}

function statusLine(job) {
  const said = [`${job.phase}${job.reason ? `: ${job.reason}` : ""}. ${job.instances} × ${job.gpus} GPUs`];
  said.push(`step ${job.step}${job.total ? ` of ${job.total}` : ""}`);
  if (job.loss !== null) said.push(`loss ${job.loss.toPrecision(4)}`);
  if (job.restarts) said.push(`${job.restarts} ${job.restarts === 1 ? "restart" : "restarts"}, ${job.lost_steps} steps lost`);
  if (job.lost_seconds) said.push(`${job.lost_seconds.toFixed(0)} s repeated after migrations`);
  return `${said.join(", ")}.`;
}

function runLine(run) {
  const where = `${run.node}, GPU ${run.gpus.join(",") || "?"}`;
  return element("div", {}, text(`${run.instance}: ${run.phase} on ${where}, generation ${run.generation}, ${run.handle}`));
}

function move(past) {
  const total = Object.values(past.seconds).reduce((sum, value) => sum + value, 0);
  const bar = element("div", { class: "phases" });
  const words = Object.entries(past.seconds).map(([phase, value]) => {
    const name = phase.replace("_", " "), part = element("i", { class: phase, title: `${name}: ${value.toFixed(2)} s` });
    part.style.width = `${total ? 100 * value / total : 0}%`;
    bar.append(part);
    return element("span", {}, element("i", { class: `key ${phase}` }), text(`${name} ${value.toFixed(2)} s`));
  });
  const line = `${past.id} (${past.cause}) ${past.outcome}: ${past.sources.join(" ")} → ${past.targets.join(" ")}, ${total.toFixed(2)} s`;
  return element("div", { class: "move" }, text(line), bar, element("div", { class: "muted legend" }, ...words, text(past.why)));
}

function eventLine(event) {
  return element("li", {}, element("time", { datetime: new Date(1000 * event.time).toISOString() }, text(clock(event.time))), text(event.text));
}

function offer(select, values, name) {
  if (select.options.length === values.length) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => element("option", { value }, text(name(value)))));
  if (values.map(String).includes(chosen)) select.value = chosen;
  select.hidden = values.length < 2;
}

async function logOf(job) {
  const generation = page.generation.value || 0, instance = page.instance.value || 0;
  const response = await request(`/jobs/${encodeURIComponent(job.id)}/logs?instance=${instance}&generation=${generation}&offset=-${LOG_BYTES}&limit=${LOG_BYTES}`);
  return response.ok ? response.text() : "nothing printed yet";
}

function showLog(words) {
  const log = page.log;
  if (log.textContent === words) return;
  // Who has scrolled up reads on; who is at the end sees what comes.
  const following = !log.textContent || log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.textContent = words;
  if (following) log.scrollTop = log.scrollHeight;
}

export async function refreshPanel() {
  if (!shown) return;
  const id = shown, path = `/jobs/${encodeURIComponent(id)}`;
  const [job, told] = await Promise.all([api(path), api(`${path}/history`)]);
  if (shown !== id) return;
  page ??= build(job);
  page.status.textContent = statusLine(job);
  page.cancel.hidden = job.ended !== null;
  for (const [part, wanted] of page.sections) part.hidden = !wanted(job);
  patch(page.runs, job.runs, (run) => `${run.generation}-${run.instance}`, runLine);
  patch(page.moves, [...job.history].reverse(), (past) => past.id, move);
  patch(page.events, [...told.events].reverse().map((event, at) => ({ ...event, at: told.events.length - at })), (event) => String(event.at), eventLine);
  offer(page.instance, [...Array(Math.min(job.instances, MOST_RUNS)).keys()], (number) => `instance ${number}`);
  // 0: the latest, whichever that is.
  offer(page.generation, [...Array(job.generation + 1).keys()].filter((number) => number !== job.generation || number < 1),
    (number) => (number ? `start ${number}` : "latest start"));
  const words = await logOf(job);
  if (shown === id) showLog(words);
}
