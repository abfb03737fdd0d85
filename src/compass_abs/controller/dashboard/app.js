// The dashboard: fetches a picture of the cluster whenever the controller says that something happened, and shows it.
// All text from users goes into the page as text nodes, never as markup.
import { api, events, onLogin } from "./client.js";
import { cell, element, jobButton, patch, progress, since, text } from "./parts.js";
import { drawCurve } from "./curves.js";
import { drawCluster, drawMoves } from "./cluster.js";
import { closePanel, followAddress, openJob, refreshPanel } from "./panel.js";

// Rows of a table: what a person reads, and a browser draws, at once.
const MOST_ROWS = 200;
const byId = (id) => document.getElementById(id);
const state = { picture: null, history: [], stale: true };

async function confirmed(question, action) {
  byId("confirm-text").textContent = question;
  const dialog = byId("confirm");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (dialog.returnValue !== "yes") return;
  try { await action(); } catch (error) { say(error.message); }
  state.stale = true;
  await look();
}

// What became of something that was asked for, until it has been read.
function say(words) {
  const said = byId("said");
  said.textContent = words;
  said.hidden = false;
  clearTimeout(state.saying);
  state.saying = setTimeout(() => { said.hidden = true; }, 8000);
}

// Nodes that take nothing new, by what they are.
function closed(picture) {
  const counts = new Map();
  for (const node of picture.nodes) if (node.status !== "up") counts.set(node.status, (counts.get(node.status) ?? 0) + 1);
  return [...counts].map(([status, count]) => `${count} ${status}`).join(", ");
}

function facts(picture) {
  const pools = picture.pools, sum = (key) => pools.reduce((total, pool) => total + pool[key], 0);
  const gpus = sum("gpus"), used = gpus - sum("free");
  const shut = closed(picture);
  const shown = [
    ["GPUs", `${used} / ${gpus}`],
    ...(shut ? [["nodes", shut]] : []),
    ["SIF", pools.map((pool) => pool.sif.toFixed(3)).join(" · ") || "–"],
    ["running", picture.counts.running + picture.counts.starting + picture.counts.migrating],
    ["waiting", picture.waiting_total],
    ["scheduler", pools.map((pool) => pool.scheduler).join(" · ") || "–"],
    ["moves", picture.mode === "recommend" ? "shown only" : picture.migrations],
  ];
  byId("facts").replaceChildren(...shown.map(([name, value]) =>
    element("div", {}, element("dt", {}, text(name)), element("dd", {}, text(value)))));
  const paused = picture.migrations === "paused";
  byId("pause").textContent = paused ? "Resume migrations" : "Pause migrations";
  byId("pause").hidden = picture.mode === "recommend";
}

function rows(id, items, make, nothing, columns) {
  const body = byId(id).tBodies[0];
  if (!items.length) {
    body.replaceChildren(element("tr", {}, element("td", { class: "empty", colspan: columns }, text(nothing))));
    return;
  }
  const shown = items.slice(0, MOST_ROWS);
  if (items.length > MOST_ROWS) shown.push({ id: "", more: `and ${items.length - MOST_ROWS} more: compass ps lists them` });
  patch(body, shown, (job) => job.id, (job) => (job.more
    ? element("tr", {}, element("td", { class: "empty", colspan: columns }, text(job.more))) : element("tr", {}, ...make(job))));
}

const size = (job) => `${job.instances} × ${job.gpus}`;
const moves = (job) => (job.migrations === 1 ? "1 move" : job.migrations ? `${job.migrations} moves` : "");
const tight = (words) => element("td", { class: "tight" }, text(words));
const open = (job) => jobButton(job, () => openJob(job.id, confirmed));

function show() {
  const picture = state.picture;
  facts(picture);
  drawCluster(byId("cluster"), picture, (id) => openJob(id, confirmed), drainOrBack);
  drawMoves(byId("moves"), byId("cluster"), picture);
  rows("running", picture.jobs, (job) => [
    cell(open(job)), cell(text(job.migration ? `migrating: ${job.migration.phase.replace("_", " ")}` : job.phase)), tight(size(job)),
    cell(progress(job)), cell(text([...new Set(job.nodes)].join(" "))),
  ], "Nothing runs.", 5);
  rows("queue", picture.waiting, (job) => [cell(open(job)), tight(size(job)), cell(text(job.reason))], "Nobody waits.", 3);
  // Rows are made anew when their content changes, so what time does to them has to be a part of it.
  const recent = picture.recent.map((job) => ({ ...job, ago: since(job.ended, picture.time) }));
  rows("recent", recent, (job) => [
    cell(open(job)), cell(text(`${job.phase}, ${job.ago} ago`)), tight(size(job)),
    cell(text(moves(job))), cell(text(job.reason === job.phase ? "" : job.reason)),
  ], "Nothing has ended yet.", 5);
  showProposals(picture);
  byId("running-count").textContent = picture.jobs.length || "";
  byId("queue-count").textContent = picture.waiting_total || "";
}

function purpose(why) {
  const [kind, ...rest] = why.split(" "), name = rest.join(" ");
  return kind === "start" ? `so that ${name} can start` : kind === "drain" ? `so that ${name} is empty` : `tidying up (${why})`;
}

function showProposals(picture) {
  const moves = picture.proposals.flatMap((proposal) => proposal.moves.map((move) =>
    ({ ...move, id: `${proposal.why} ${move.job} ${move.instance}`, why: purpose(proposal.why) })));
  const named = (move) => ({ id: move.job, name: move.gpus === 1 ? `1 GPU` : `${move.gpus} GPUs` });
  byId("proposals-section").hidden = !moves.length && picture.mode !== "recommend";
  byId("proposals-count").textContent = moves.length || "";
  rows("proposals", moves, (move) => [cell(open(named(move))), tight(move.from), tight(move.to), cell(text(move.why))], "Nothing would be moved.", 4);
}

function drainOrBack(node) {
  const back = node.status !== "up";
  const action = back ? "undrain" : "drain";
  const question = back ? `Let ${node.name} take part again?` : `Move everything off ${node.name} and let nothing new onto it?`;
  return confirmed(question, () => api(`/nodes/${encodeURIComponent(node.name)}/${action}`, { method: "POST" }));
}

async function look() {
  state.stale = false;
  try {
    state.picture = await api("/overview");
    show();
    await refreshPanel();
  } catch (error) { setLive(false, error.message); }
}

async function lookBack() {
  const last = state.history.length ? state.history[state.history.length - 1].time : 0;
  try {
    const { samples } = await api(`/history?since=${Math.floor(last)}`);
    state.history.push(...samples.filter((sample) => sample.time > last));
    state.history.splice(0, Math.max(0, state.history.length - 1200));
    const percent = (value) => `${(100 * value).toFixed(0)} %`;
    drawCurve(byId("utilisation"), byId("utilisation-now"), state.history, (s) => s.utilisation, 1, percent);
    drawCurve(byId("sif"), byId("sif-now"), state.history, (s) => s.sif, 0.1, (value) => value.toFixed(3));
    drawCurve(byId("waiting"), byId("waiting-now"), state.history, (s) => s.waiting, 5, (value) => value.toFixed(0));
  } catch { /* the next look will tell */ }
}

function setLive(on, words) {
  byId("live").classList.toggle("on", on);
  byId("live").textContent = words;
}

byId("pause").addEventListener("click", () => {
  const paused = state.picture?.migrations === "paused";
  confirmed(paused ? "Let migrations be made again?" : "Let no migration begin until you say otherwise?",
    () => api(`/migrations/${paused ? "resume" : "pause"}`, { method: "POST" }));
});
byId("panel-close").addEventListener("click", closePanel);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closePanel(); });
window.addEventListener("resize", () => { if (state.picture) drawMoves(byId("moves"), byId("cluster"), state.picture); });

onLogin(async () => {
  const dialog = byId("login");
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  return byId("token").value;
});
events(() => { state.stale = true; }, setLive);
// Many things may happen at once; a picture of them all is taken at most twice a second, and now and then anyway.
setInterval(() => { if (state.stale) look(); }, 500);
setInterval(() => { state.stale = true; }, 3000);
setInterval(lookBack, 2000);
window.addEventListener("hashchange", () => followAddress(confirmed));
look().then(lookBack).then(() => followAddress(confirmed));
