// The line to the server: the token, the stream of frames, requests.

const KEY = "partbox-token";
const SILENCE = 12000; // milliseconds without a frame after which the stream counts as lost
const HIDDEN = 30000; // for so long a page that nobody sees goes on watching

// The token comes in the address, behind the "#", which no browser sends anywhere; it stays in this tab.
export function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

export const keep = (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY));

const headers = (held = token()) => (held ? { authorization: `Bearer ${held}` } : {});

// Data, or an Error with the server's message.
async function answer(response) {
  const said = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(said.error ?? "refused"), { status: response.status });
  return said;
}

export const get = (path, query) =>
  fetch(`${path}?${new URLSearchParams(query)}`, { headers: headers(), cache: "no-store" }).then(answer);

const order = (path, body, { signal, held = token() } = {}) =>
  fetch(path, {
    method: "POST",
    headers: { ...headers(held), "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const post = (path, body) => order(path, body).then(answer);

// The error of a token, null if it is right.
export async function refusal(given) {
  if (!/^[\x21-\x7e]+$/.test(given)) return "That is not the token: it has letters, digits, - and _ only.";
  try {
    await order("api/unlock", {}, { held: given }).then(answer);
    return null;
  } catch (error) {
    return `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
  }
}

// A long order: `progress(done, total)` while it goes on; returns the number done. Aborting the signal stops it.
export async function postLong(path, body, progress, signal) {
  const response = await order(path, body, { signal });
  if (!response.ok) await answer(response);
  let finished = 0;
  for await (const line of pieces(response.body, "\n")) {
    const said = JSON.parse(line);
    if (said.error) throw new Error(said.error);
    if ("finished" in said) finished = said.finished;
    else progress(said.done, said.total);
  }
  return finished;
}

// The pieces of a stream between separators.
async function* pieces(body, separator) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(separator);
      rest = parts.pop();
      for (const part of parts) if (part) yield part;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Watches a subscription until `stop()`. `frame(data)` for each; `lost(error)` when it breaks, and it tries again.
export class Stream {
  constructor({ frame, lost }) {
    this.tell = { frame, lost };
    document.addEventListener("visibilitychange", () => this.#seen());
  }

  watch(subscription) {
    this.subscription = subscription;
    this.stop();
    this.#run((this.abort = new AbortController()));
  }

  stop() {
    this.abort?.abort();
    this.abort = null;
  }

  async #run(abort) {
    for (let failures = 0; !abort.signal.aborted; failures++) {
      try {
        if (await this.#read(abort, () => (failures = 0))) continue;
        this.tell.lost(new Error("the server has ended the stream"));
      } catch (error) {
        if (abort.signal.aborted) return;
        this.tell.lost(error);
        if (error.status === 401 || error.status === 403) return;
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** failures, 5000)));
    }
  }

  // True if it had a frame: the server ends each stream after a while, to judge the right to the next one.
  async #read(abort, alive) {
    const attempt = new AbortController();
    const end = () => attempt.abort();
    abort.signal.addEventListener("abort", end);
    let watch = setTimeout(end, SILENCE);
    try {
      const query = this.subscription ? `?${new URLSearchParams({ subscription: this.subscription })}` : "";
      const response = await fetch(`events${query}`, { headers: headers(), cache: "no-store", signal: attempt.signal });
      if (!response.ok) await answer(response);
      let heard = false;
      for await (const event of pieces(response.body, "\n\n")) {
        if (abort.signal.aborted) return heard;
        clearTimeout(watch);
        watch = setTimeout(end, SILENCE);
        alive();
        heard = true;
        this.tell.frame(JSON.parse(event.slice("data: ".length)));
      }
      return heard;
    } finally {
      clearTimeout(watch);
      abort.signal.removeEventListener("abort", end);
    }
  }

  #seen() {
    clearTimeout(this.away);
    if (document.hidden) this.away = setTimeout(() => this.stop(), HIDDEN);
    else if (!this.abort) this.watch(this.subscription);
  }
}
