// The state of the page, and its form in the URL fragment, which browsers send to no server.
import { changed, checkedSettings, defaults } from "./settings.js";

export const VIEWS = { list: "List", map: "Map", compare: "Compare", complete: "Complete", steps: "Steps", model: "Model" };
const LIMITS = { k: [1, 100], n: [1, 12], together: [0, 1], seed: [0, 1e6] };
const ITEM_LISTS = ["history", "hidden"];
const SETTINGS = ["current", "saved"];
const initial = () => ({ view: "list", history: [], hidden: [], current: defaults(), saved: defaults(), similar: "", k: 20, n: 4, together: 0.25, seed: 0 });

export const state = {
	...initial(),
	names: {}, // titles of items by id
	model: null, // the answer of /model
	failed: "", // the error of /model
	answers: {}, // by purpose: { asked, key, data, error }; `asked` differs from `key` while a request is open
	query: "", open: false, active: -1, entered: false, // the search field; `entered`: Enter waits for the answer
	brush: "", sheet: false, copied: "", step: 0,
	lasso: false, thinning: false, chosen: "", picked: "", colour: "", only: "", // the map
	asking: false, seek: "", whynot: "", // why an item is not in the list
	luck: Math.floor(1e6 * Math.random()), // the seed of "surprise me"
};

let listener = () => {};
export const onChange = (call) => (listener = call);

// Back returns to the state before a change. A slider in motion is one change: its address is saved once it rests
// (browsers also limit how often the address may change), others `now`.
export function change(patch, now = false) {
	if (now) save();
	Object.assign(state, patch);
	listener();
	clearTimeout(pending);
	if (now) save();
	else pending = setTimeout(save, 250);
}
let pending, known; // the address that was read or written last: after Back, `readLink` reads another soon
export function save(how = "pushState") {
	if (location.hash !== known) return;
	if ((known || "#") !== fragment()) history[how](null, "", fragment());
	known = location.hash;
}

export const changeCurrent = (patch, now) => change({ current: { ...state.current, ...patch } }, now);
export function rememberNames(items) {
	for (const one of items) state.names[one.item] = one.name;
}
export function add(...items) {
	rememberNames(items);
	const ids = [...new Set([...state.history, ...items.map(({ item }) => item)])];
	change({ history: ids, similar: ids.includes(state.similar) ? "" : state.similar, query: "", open: false, active: -1, entered: false }, true);
}
export const remove = (item) =>
	change({ history: state.history.filter((other) => other !== item), similar: state.similar === item ? "" : state.similar }, true);
export const nameOf = (item) => state.names[item] ?? item;

// Whether the last answer is the one to the last request: until then a view shows an older state.
export const isCurrent = (purpose) => state.answers[purpose]?.key === state.answers[purpose]?.asked;

export function fragment(changes = {}) {
	const shown = { ...state, ...changes }, start = initial(), params = new URLSearchParams();
	for (const name of ITEM_LISTS) for (const item of shown[name]) params.append(name, item);
	for (const name of SETTINGS) if (Object.keys(changed(shown[name])).length) params.set(name, JSON.stringify(changed(shown[name])));
	for (const name of ["view", "similar", ...Object.keys(LIMITS)]) if (shown[name] !== start[name]) params.set(name, shown[name]);
	return "#" + params;
}

export function readLink() {
	known = location.hash;
	const params = new URLSearchParams(location.hash.slice(1)), found = initial();
	if (params.get("view") in VIEWS) found.view = params.get("view");
	for (const name of ITEM_LISTS) found[name] = [...new Set(params.getAll(name))].filter(Boolean).slice(0, 500);
	for (const name of SETTINGS) {
		try {
			found[name] = checkedSettings(JSON.parse(params.get(name)));
		} catch {} // a link that was cut keeps the defaults
	}
	found.similar = params.get("similar") ?? "";
	for (const [name, [least, most]] of Object.entries(LIMITS)) {
		const value = Number(params.get(name) ?? NaN);
		if (value >= least && value <= most) found[name] = name === "together" ? value : Math.round(value);
	}
	Object.assign(state, found);
}
