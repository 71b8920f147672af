// Questions to the service. The token comes with the start-up URL and is taken out of the address at once.
const KEPT = "recfusion-token";
let token = sessionStorage.getItem(KEPT) ?? "";

export function takeToken() {
  const params = new URLSearchParams(location.hash.slice(1));
  if (!params.has("token")) return;
  token = params.get("token");
  sessionStorage.setItem(KEPT, token);
  params.delete("token");
  history.replaceState(null, "", params.size ? "#" + params : location.pathname);
}

export async function ask(path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const post = { method: "POST", body: JSON.stringify(body), headers: { ...headers, "Content-Type": "application/json" } };
  let answer, data;
  try {
    answer = await fetch(path, body ? post : { headers });
  } catch {
    throw new Error("The service does not answer. Is it still running?");
  }
  try {
    data = await answer.json();
  } catch {
    data = null;
  }
  if (!answer.ok) throw new Error(message(data) ?? `The service answered ${answer.status}.`);
  return data;
}

function message(data) {
  const told = data?.error ?? data?.detail ?? data?.message;
  if (Array.isArray(told)) return told.map((one) => one.msg ?? String(one)).join("; ");
  return typeof told === "object" ? told?.message : told;
}

// At most one call under way: of those that come meanwhile, only the last is made. A slider never waits for a queue.
export function latest(run) {
  let busy = false, next = null;
  return async function call(...args) {
    if (busy) return void (next = args);
    busy = true;
    await run(...args);
    busy = false;
    if (next) {
      const args = next;
      next = null;
      call(...args);
    }
  };
}
