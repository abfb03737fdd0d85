// Requests to the controller, with its token where it asks for one.
const KEY = "compass-token";
let askForToken = async () => "";
let asking = null;

export function onLogin(ask) { askForToken = ask; }

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function login() {
  asking ??= askForToken().then((token) => { sessionStorage.setItem(KEY, token.trim()); asking = null; });
  await asking;
}

export async function request(path, options = {}) {
  for (;;) {
    const response = await fetch(`/api/v1${path}`, { ...options, headers: { ...options.headers, ...headers() } });
    if (response.status !== 401) return response;
    await login();
  }
}

export async function api(path, options = {}) {
  const response = await request(path, options);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `answer ${response.status}`);
  return body;
}

// The stream of events, read by hand: EventSource can't send a token.
export async function events(happened, live) {
  let last = "", pause = 500;
  for (;;) {
    try {
      const response = await request("/events", { headers: last ? { "last-event-id": last } : {} });
      if (!response.ok) throw new Error(`answer ${response.status}`);
      live(true, "live");
      happened();
      pause = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += value;
        const parts = rest.split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const id = /^id: (\d+)$/m.exec(part);
          if (id) { last = id[1]; happened(); }
        }
      }
    } catch { /* said below */ }
    live(false, "the controller does not answer");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 8000);
  }
}
