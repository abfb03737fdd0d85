// Two pictures for each pool: as it is, and after the moves.
const data = JSON.parse(document.getElementById('data').textContent);
const el = (id) => document.getElementById(id);
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const all = [];
let printing = false;

for (const [number, pool] of data.pools.entries()) {
  const jobs = decodeJobs(pool.jobs, pool.ids.length), fixed = new Set(pool.fixed), fills = new Map();
  const shared = { jobs, nodes: pool.nodes, capacity: pool.capacity, colors: palette(), sorted: false, focus: -1,
    jobColors(job) {
      if (!fills.has(job)) fills.set(job, fixed.has(job) ? (dark.matches && !printing ? '#5d646c' : '#b4b6b8') : jobColor(job, dark.matches && !printing));
      return fills.get(job);
    } };
  const replay = new Replay(pool.events, jobs, pool.nodes), sides = [];
  for (const side of ['before', 'after']) {
    const canvas = el(`${side}-${number}`);
    if (!canvas) continue;
    const picture = new Picture(canvas, el(`facts-${side}-${number}`), shared);
    picture.show(replay, side === 'before' ? 'As it is' : 'After');
    picture.describe = describe;
    picture.starts = side === 'before' ? 0 : pool.started;
    sides.push({ picture, time: pool[side], trail: side === 'before' ? 1 : pool.after + 1 });
    canvas.addEventListener('pointermove', (event) => point(event, picture, shared, pool, number));
    canvas.addEventListener('pointerdown', (event) => point(event, picture, shared, pool, number));
    canvas.addEventListener('pointerleave', () => { shared.focus = -1; el(`hover-${number}`).textContent = ''; redraw(); });
  }
  const box = el(`sorted-${number}`);
  if (box) box.addEventListener('change', () => { shared.sorted = box.checked; redraw(); });
  all.push({ shared, fills, sides });
}

function describe(t, now) {
  const bold = (n) => `<b>${n.toLocaleString('en')}</b>`;
  let text = `${bold(now.partial)} partly filled, ${bold(now.empty)} empty, ${bold(now.free)} GPU${now.free === 1 ? '' : 's'} free`;
  if (now.down) text += `, ${now.down} node${now.down === 1 ? '' : 's'} not up`;
  if (now.moved) text += `. ${now.moved.toLocaleString('en')} moved`;
  if (this.starts) text += `${now.moved ? ', ' : '. '}${this.starts} of those that wait started`;
  this.facts.innerHTML = text; // numbers and fixed words only: names of jobs never come here
  this.canvas.setAttribute('aria-label', `${this.title}: ${this.facts.textContent}`);
}

function point(event, picture, shared, pool, number) {
  const box = picture.canvas.getBoundingClientRect(), hit = picture.at(event.clientX - box.left, event.clientY - box.top);
  shared.focus = hit ? hit.job : -1;
  let text = '';
  if (hit) {
    text = `${pool.names[hit.node]}: `;
    if (hit.job < 0) text += 'free';
    else {
      const name = pool.ids[hit.job];
      text += `${name.length > 80 ? name.slice(0, 79) + '…' : name}, ${shared.jobs.instances[hit.job]} × ${shared.jobs.gpus[hit.job]} GPUs`;
      if (pool.fixed.includes(hit.job)) text += ', stays where it is';
      if (pool.starts.includes(hit.job)) text += ', starts';
    }
  }
  el(`hover-${number}`).textContent = text;
  redraw();
}

let asked = false;
function render() {
  asked = false;
  for (const pool of all) for (const side of pool.sides) side.picture.draw(side.time, side.trail);
}
function redraw() { if (!asked) { asked = true; requestAnimationFrame(render); } }
const PRINTED = { ink: '#000', soft: '#444', line: '#bbb', cell: '#eee', partial: '#b87800', moved: '#000', grid: '#e5e5e5' };
function recolor() { for (const pool of all) { pool.fills.clear(); pool.shared.colors = printing ? PRINTED : palette(); } }
window.addEventListener('resize', redraw);
dark.addEventListener('change', () => { recolor(); redraw(); });
window.addEventListener('beforeprint', () => { for (const box of document.querySelectorAll('details')) box.open = true; printing = true; recolor(); render(); });
window.addEventListener('afterprint', () => { printing = false; recolor(); redraw(); });
render();
document.documentElement.dataset.ready = 'yes';
