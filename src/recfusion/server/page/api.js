// Requests to the service. The token comes with the URL and is removed from the address at once.
const KEY = "recfusion-token";
let token = sessionStorage.getItem(KEY);

export function takeToken() {
	const params = new URLSearchParams(location.hash.slice(1));
	if (!params.has("token")) return false;
	token = params.get("token");
	sessionStorage.setItem(KEY, token);
	params.delete("token");
	history.replaceState(null, "", "#" + params);
	return true;
}

export const authorization = () => token && { Authorization: `Bearer ${token}` };

// The answer to a request, and its JSON, if it is any: a proxy may answer in its place.
export async function send(method, path, headers, body) {
	const sent = body && { headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) };
	try {
		const answer = await fetch(path, { method, headers, ...sent });
		return [answer, await answer.json().catch(() => undefined)];
	} catch {
		throw failure("The service does not answer. Is it still running?", true);
	}
}

export async function ask(path, body) {
	const [{ ok, status }, data] = await send(body ? "POST" : "GET", path, { ...authorization() }, body);
	if (status === 401) throw failure("This page needs a token: open the address that the service printed in its terminal, or add #token=KEY with a key for reading.");
	if (!ok || !data) throw failure(data?.error ?? `The service answered ${status}.`, status >= 500 || status === 429);
	return data;
}

// `passing`: the same request may succeed later.
const failure = (message, passing = false) => Object.assign(new Error(message), { passing });

// One call at a time: of the calls that arrive meanwhile only the last is made, so that a slider never waits.
export function latest(run) {
	let busy = false, next;
	return async function call(...args) {
		if (busy) return void (next = args);
		busy = true;
		await run(...args);
		busy = false;
		const waiting = next;
		next = undefined;
		if (waiting) call(...waiting);
	};
}
