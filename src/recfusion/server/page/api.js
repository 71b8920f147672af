// Requests to the service. The token comes with the start-up URL and is removed from the address at once.
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

export async function ask(path, body) {
	const headers = { ...(token && { Authorization: `Bearer ${token}` }), ...(body && { "Content-Type": "application/json" }) };
	let answer, data;
	try {
		answer = await fetch(path, { headers, ...(body && { method: "POST", body: JSON.stringify(body) }) });
	} catch {
		throw new Error("The service does not answer. Is it still running?");
	}
	try {
		data = await answer.json();
	} catch {} // not JSON: possibly the answer of a proxy
	if (answer.status === 401) throw new Error("This page needs a token: open the address that the service printed at its start.");
	if (!answer.ok || !data) throw new Error(data?.error ?? `The service answered ${answer.status}.`);
	return data;
}

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
